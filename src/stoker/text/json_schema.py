"""The version of the JSON that commands and the web server print (docs/reference.md)."""

JSON_SCHEMA = 2
