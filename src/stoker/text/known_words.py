"""Commands and options of other tools, with their equivalents in Stoker. Used only for hints."""

from __future__ import annotations

# Commands with one equivalent.
COMMANDS = {
    "ps": "stoker ls", "jobs": "stoker ls", "squeue": "stoker ls", "qstat": "stoker ls",
    "history": "stoker ls --state final", "htop": "stoker top",
    "nvtop": "stoker top", "monitor": "stoker top", "sinfo": "stoker gpus",
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
    "grid": "stoker sweep", "agent": "stoker sweep", "study": "stoker sweep",
    "studies": "stoker sweep ls", "metrics": "stoker results", "graph": "stoker plot",
    "chart": "stoker plot", "device": "stoker gpus", "devices": "stoker gpus",
    "sacct": "stoker ls --state final", "label": "stoker tag", "server": "stoker web",
    "new": "stoker submit", "launch": "stoker submit", "comment": "stoker note",
    "annotate": "stoker note", "summary": "stoker report",
    "favorite": "stoker star", "bookmark": "stoker star",
}  # fmt: skip
# Commands with two possible meanings.
EITHER = {
    "stop": ("stoker cancel JOB", "stoker daemon stop"),
    "start": ("stoker release JOB", "stoker daemon start"),
    "resume": ("stoker sweep resume NAME", "stoker daemon resume"),
    "drain": ("stoker gpus drain GPU", "stoker daemon drain"),
    "shutdown": ("stoker daemon stop", "stoker cancel all"),
    "exit": ("stoker daemon stop", "stoker cancel all"),
    "quit": ("stoker daemon stop", "stoker cancel all"),
    "halt": ("stoker daemon stop", "stoker cancel all"),
    "rename": ("stoker edit JOB --name NAME", "stoker tag JOB +TAG"),
}
# Options with an equivalent, suggested where a command has it.
OPTIONS = {
    "--gpu-count": "--gpus", "--cuda-visible-devices": "--gpu-ids", "--dependencies": "--after",
    "--err": "--stderr", "--workers": "--jobs", "--bind": "--host", "--addr": "--host",
    "--address": "--host",
    "--cpu": "--cpus", "--cores": "--cpus", "--ncpus": "--cpus", "--num-cpus": "--cpus",
    "--cpus-per-task": "--cpus", "--memory": "--mem", "--ram": "--mem", "--licenses": "--need",
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
# Options without an equivalent.
WITHOUT = {
    "--nodes": "Stoker runs jobs on this host only; remove the option",
    "--ntasks": "a job is one command; remove the option",
    "--partition": "there is only one queue; remove the option",
    "--queue": "there is only one queue; remove the option",
}
