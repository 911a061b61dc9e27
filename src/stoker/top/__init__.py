"""`stoker top`: the queue in a terminal, live, with Textual.

What is shown comes from `client/live_state.py`, as in the web UI. The path of a change: the watcher
(`client/state_watcher.py`) reads a state in its thread and app.py gives it to the `Dashboard`;
frame.py draws the dashboard as lines of styled text, without Textual; display.py sends the cells
that differ to the terminal. The path of a key: app.py, `Dashboard.key`, and for a change of a job
job_actions.py in a thread with its own database connection.

No other command imports Textual, which takes a quarter of a second.
"""
