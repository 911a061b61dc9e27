"""The environment of a job: found at submit, activated when the job starts.

    conda_prefixes.py     where conda, mamba and micromamba keep environments
    venvs.py              virtual environments
    container_engines.py  docker, podman, apptainer: which one, and how a container is removed
    container_command.py  the command that runs a job in a container
    activate.py           what the runner executes instead of the command of a job
    uv_start.py           a program: executes a command in the environment of a uv project

A job starts as one process in every case. Names and paths are arguments or environment variables,
never text of a shell script.
"""
