"""`stoker web`: the web UI and the HTTP API of the queue, in its own process.

The path of a request: `stoker.web.http` (connection limits, middleware), auth.py (who may do what),
routes_read.py or routes_write.py, `client/database_threads.py` (a thread with its own database
connection), and back as JSON through responses.py. Changes reach the browser through event_hub.py.
Logs are sent as rendered lines by `client/live/log_view.py`.

No other command imports this package: importing fastapi and uvicorn takes half a second.
"""
