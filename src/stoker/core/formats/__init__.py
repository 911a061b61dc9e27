"""Parsing of user input and rendering of text."""
