"""Features that the engine does not need, one folder each.

A folder has what its feature adds to every layer: `store.py` (SQL), commands in `verbs/`, routes in
`web.py`, a helper process of the daemon. Its row here is all that the command line needs to find
it, and imports nothing.
"""

COMMANDS = {
    "artifacts": ("pull",),
    "backends": ("backend",),
    "notes": ("note", "tag", "star"),
    "notify": ("notify",),
    "remote": ("box", "context"),
    "results": ("results", "plot", "report"),
    "simulate": ("simulate",),
    "sweeps": ("sweep",),
    "terminal": ("shell", "attach"),
    "top": ("top",),
}  # by feature; the commands of the engine are in cli/verbs/
