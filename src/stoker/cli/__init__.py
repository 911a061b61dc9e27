"""The command line: parse, call the api, print. One verb or one family of verbs a file."""
