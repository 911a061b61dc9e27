"""Notifications about jobs. The walk of one message:

1. triggers in engine/store/schema.sql record an event with the change (`features/notify/store.py`)
2. the daemon starts `notifier.py` when there are events (`features/notify/notifier_process.py`)
3. `collect.py` chooses the places of each event and gathers the facts
4. `features/notify/message.py` makes one message of all events for a place
5. `send_process.py`, a process for each try, sends it with one of `senders/`

`places_file.py` reads and writes the addresses, which are secrets, in the settings file.
"""
