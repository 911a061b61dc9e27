"""`stoker simulate`: a trace of jobs under other scheduling policies."""
