"""The command line: parse, call the client, print. The commands are in `verbs/`."""
