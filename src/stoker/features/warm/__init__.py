"""Warm starts: fork servers that have imported a job's modules (decision 014)."""
