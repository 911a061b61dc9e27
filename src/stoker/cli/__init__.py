"""The command line: parse, call the client, print. Each file has one or a few commands."""
