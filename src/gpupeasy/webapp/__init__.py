"""Where start scripts look for the page."""
