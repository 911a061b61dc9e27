"""`stoker --host BOX COMMAND`: what each command does on this machine and on the box.

Most commands run on the box as they are (`forward.py`). The other files are commands that survive
a lost connection or use files of this machine; `features/remote/verbs/box.py` is their end on the
box.
"""
