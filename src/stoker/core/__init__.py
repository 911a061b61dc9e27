"""Pure decisions: model, states, policy. No clock, no files, no processes, no chance."""
