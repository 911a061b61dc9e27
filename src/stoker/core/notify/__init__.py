"""Notifications: when and where (rules.py), the settings, and the texts of messages."""
