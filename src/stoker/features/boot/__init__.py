"""Starting the daemon after a boot."""
