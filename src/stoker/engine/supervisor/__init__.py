"""The only place that starts, watches and signals processes of jobs.

`children` is the parent of jobs: inside the detached `runner` process (jobs outlive the daemon), or
inside `stoker run` (jobs end with it). `runner_client` is the daemon's connection to the runner.
"""
