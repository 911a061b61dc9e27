"""One file for each kind of place. `send` returns when the receiver has accepted the message."""
