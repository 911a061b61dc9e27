"""Where start scripts look for the server."""
