"""The queue on disk: one SQLite file per user and host, and the only place with SQL.

`database` opens it; `submissions` adds jobs, `changes` does what people ask for, `ledger` records
what the daemon did, `find` reads. Each function that writes is one transaction or part of one.
"""
