"""Pure code: model, states, policy. It uses no clock, files, processes or random numbers."""
