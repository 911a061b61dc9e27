"""Notifications about jobs. The walk of one message:

1. triggers in store/schema.sql record an event with the change (`store/notify_outbox.py`)
2. the daemon starts `notifier.py` when there are events (`daemon/helpers/notifier_process.py`)
3. `collect.py` chooses the places of each event and gathers the facts
4. `core/notify/message.py` makes one message of all events for a place
5. `send_process.py`, a process for each try, sends it with one of `senders/`

`places_file.py` reads and writes the addresses, which are secrets, in the settings file.
"""
