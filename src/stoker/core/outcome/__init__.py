"""What an exit means: the job's next state and the cause of a failure."""
