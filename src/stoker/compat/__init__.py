"""Compatible commands: the commands, files and imports of other GPU schedulers, run by Stoker."""
