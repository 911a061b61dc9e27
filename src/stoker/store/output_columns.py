"""`-o out-%j.txt`, as Slurm's users write it.

The path is stored as it was given and the id filled in when it is read: a rerun has another id.
"""

from __future__ import annotations

STDOUT = "CAST(replace(j.stdout, '%j', j.id) AS BLOB)"
STDERR = "CAST(replace(j.stderr, '%j', j.id) AS BLOB)"
