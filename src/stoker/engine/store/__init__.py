"""The database: one SQLite file per user and host. Only this package contains SQL.

`database` opens it, `submit` adds jobs, `changes` applies changes by users, `attempts` records what
the daemon did, and `job_queries` reads. Each function that writes is one transaction or part of
one.
"""
