"""The only place that starts, watches and signals processes.

`children` is the parent of jobs: inside the detached `runner` process (jobs outlive the daemon), or
inside `stoker run` (jobs end with it). `runner_link` is the daemon's side of the runner.
"""
