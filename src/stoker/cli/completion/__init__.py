"""Shell completion.

`verbs/completion.py` has a function for each shell that runs `stoker __complete` for every Tab, so
that one implementation serves all shells and knows the options of the installed version.
`command_line.py` finds out what is completed, from the tables that parse the options; `words.py`
has the words.
"""
