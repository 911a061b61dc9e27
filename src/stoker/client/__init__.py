"""The one way in for every interface: changes, views and waiting for jobs."""
