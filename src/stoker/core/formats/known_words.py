"""Commands and options of other tools, and what they are called here. Only for hints."""

from __future__ import annotations

# What to type instead of a command that Stoker does not have.
COMMANDS = {
    "ps": "stoker ls", "jobs": "stoker ls", "squeue": "stoker ls", "qstat": "stoker ls",
    "history": "stoker ls --state final", "top": "stoker status", "sinfo": "stoker gpus",
    "gpu": "stoker gpus", "nvidia-smi": "stoker gpus", "sbatch": "stoker submit",
    "qsub": "stoker submit", "enqueue": "stoker submit", "push": "stoker submit",
    "srun": "stoker run", "exec": "stoker run", "scancel": "stoker cancel", "qdel": "stoker cancel",
    "abort": "stoker cancel", "terminate": "stoker cancel", "delete": "stoker rm",
    "remove": "stoker rm", "del": "stoker rm", "purge": "stoker clean", "restart": "stoker rerun",
    "retry": "stoker rerun", "redo": "stoker rerun", "requeue": "stoker rerun",
    "tail": "stoker log -f", "follow": "stoker log -f", "output": "stoker log",
    "cat": "stoker log", "info": "stoker show", "describe": "stoker show",
    "inspect": "stoker show", "scontrol": "stoker show", "pause": "stoker hold",
    "unpause": "stoker release", "watch": "stoker ls --watch", "ui": "stoker web",
    "gui": "stoker web", "dashboard": "stoker web", "serve": "stoker web",
    "table": "stoker results", "search": "stoker sweep", "tune": "stoker sweep",
    "grid": "stoker sweep", "agent": "stoker sweep",
}  # fmt: skip
# Where a word may mean one of two things.
EITHER = {
    "stop": ("stoker cancel JOB", "stoker daemon stop"),
    "start": ("stoker release JOB", "stoker daemon start"),
    "resume": ("stoker sweep resume NAME", "stoker daemon resume"),
    "drain": ("stoker gpus drain GPU", "stoker daemon drain"),
    "shutdown": ("stoker daemon stop", "stoker cancel all"),
    "rename": ("stoker edit JOB --name NAME", "stoker tag JOB +TAG"),
}  # fmt: skip
OPTIONS = {
    "--gpu": "--gpus", "--ngpus": "--gpus", "--num-gpus": "--gpus", "--gres": "--gpus",
    "--devices": "--gpu-ids", "--gpu-id": "--gpu-ids", "--device": "--gpu-ids",
    "--vram": "--gpu-mem", "--gpu-memory": "--gpu-mem", "--gpumem": "--gpu-mem",
    "--depends": "--after", "--depends-on": "--after", "--dependency": "--after",
    "--time": "--time-limit", "--timeout": "--time-limit", "--walltime": "--time-limit",
    "--job-name": "--name", "--output": "--stdout", "--log": "--stdout", "--error": "--stderr",
    "--chdir": "--cwd", "--workdir": "--cwd", "--dir": "--cwd", "--folder": "--cwd",
    "--retry": "--retries", "--max-retries": "--retries", "--label": "--tag", "--tags": "--tag",
    "--delay": "--begin", "--at": "--begin", "--start": "--begin", "--nice": "--priority",
    "--force": "--now", "--all": "--state", "--num-trials": "--trials", "--n-trials": "--trials",
    "--search": "--method", "--objective": "--metric", "--parallel": "--max-parallel",
    "--concurrency": "--max-parallel", "--csv-file": "--csv", "--tail": "--lines",
}  # fmt: skip
# Options for which there is nothing here.
WITHOUT = {
    "--cpus": "Stoker does not limit CPUs; leave it out",
    "--cpu": "Stoker does not limit CPUs; leave it out",
    "--cores": "Stoker does not limit CPUs; leave it out",
    "--cpus-per-task": "Stoker does not limit CPUs; leave it out",
    "--mem": "Stoker does not limit memory; for GPU memory: --gpu-mem 20G",
    "--memory": "Stoker does not limit memory; for GPU memory: --gpu-mem 20G",
    "--ram": "Stoker does not limit memory; leave it out",
    "--partition": "there is one queue; leave it out",
    "--queue": "there is one queue; leave it out",
}
