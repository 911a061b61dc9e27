"""The command of the tool hog."""
