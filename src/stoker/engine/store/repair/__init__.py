"""Snapshots of the database, and its repair after damage."""
