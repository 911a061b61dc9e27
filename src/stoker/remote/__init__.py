"""Another machine ("box") over the user's ssh: saved boxes, the connection, commands and files.

`cli/remote/` decides what each command does on a box; `cli/verbs/box.py` is its other end there.
"""
