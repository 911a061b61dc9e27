"""The command of iterait/scheduler."""
