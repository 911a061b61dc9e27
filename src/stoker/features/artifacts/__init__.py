"""Files that jobs write: listed, shown, copied, continued from."""
