"""Which waiting job starts on which GPU: pure decisions."""
