"""Hooks for tests."""
