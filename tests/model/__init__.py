"""An explicit-state model of the protocol between daemon, runner, job and user."""
