"""gpu-hog in Python: `from hog import hog, run_jobs` (see docs/coming-from/hog.md)."""

from stoker.compat.hog.main import hog, job, main, run_jobs

__all__ = ["hog", "job", "main", "run_jobs"]
