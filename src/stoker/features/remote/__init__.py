"""Another machine ("box") over the user's ssh: saved boxes, the connection, commands and files.

`features/remote/cli/` decides what each command does on a box; `features/remote/verbs/box.py` is
its other end there.
"""
