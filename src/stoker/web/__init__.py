"""`stoker web`: the queue as a page and an HTTP interface, in a process of its own.

The walk of a request: `stoker.http` (limits of a connection, the gate), guard.py (who may ask),
routes_read.py or routes_act.py (which question), desk.py (a thread with its own connection to the
store), and back as JSON through answers.py. Changes reach the page through hub.py and stream.py.

Nothing of this is imported by other commands; fastapi and uvicorn cost half a second.
"""
