"""`gpupeasy.webapp.peasyWebGUI`, as start scripts import it."""
