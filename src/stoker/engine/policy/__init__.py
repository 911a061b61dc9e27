"""The scheduling policy: which waiting job starts on which GPU."""
