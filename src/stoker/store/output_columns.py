"""Output paths with `%j`, as in Slurm: `-o out-%j.txt`.

The database stores the path as given; these columns insert the job id when it is read, because a
rerun has another id.
"""

from __future__ import annotations

STDOUT = "CAST(replace(j.stdout, '%j', j.id) AS BLOB)"
STDERR = "CAST(replace(j.stderr, '%j', j.id) AS BLOB)"
