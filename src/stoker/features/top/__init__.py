"""`stoker top`: the queue in a terminal, live, with Textual.

What is shown comes from `client/live/live_state.py`, as in the web UI. The path of a change: the
watcher (`client/live/state_watcher.py`) reads a state in its thread, and `show` in screen.py
updates the widgets whose contents differ; app.tcss says where they are. Lists are row_table.py, the
log is log_pane.py; what the state does not have is read in readings.py, in threads. The path of a
key: `BINDINGS` of the widget with the focus or of the app, and for a change of a job
job_actions.py.

No other command imports Textual, which takes a quarter of a second.
"""
