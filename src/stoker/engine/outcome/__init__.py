"""The outcome of an attempt: the next state of its job and the cause of a failure."""
