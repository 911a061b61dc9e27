"""Names that Optuna, Ray Tune, W&B, Hydra and numpy use for what Stoker calls differently.

Only hints use these tables; none of the names is accepted. One table for each place where a name
may be written, because the same name can mean different things in different places.
"""

from __future__ import annotations

from collections.abc import Mapping

FUNCTIONS = {
    "uniform": "interval", "float": "interval", "real": "interval", "q_uniform": "interval",
    "quniform": "interval", "between": "interval", "suggest_float": "interval",
    "suggest_uniform": "interval", "loguniform": "log", "log_uniform": "log",
    "log_uniform_values": "log", "qloguniform": "log",
    "q_log_uniform": "log", "q_log_uniform_values": "log", "lognormal": "log", "log_normal": "log",
    "log10": "log", "log2": "log", "suggest_loguniform": "log", "randint": "int",
    "int_uniform": "int", "integer": "int", "ints": "int", "suggest_int": "int", "qrandint": "int",
    "gauss": "normal", "norm": "normal", "gaussian": "normal", "randn": "normal",
    "qnormal": "normal", "q_normal": "normal", "categorical": "choice", "choices": "choice",
    "suggest_categorical": "choice", "values": "choice", "list": "choice", "options": "choice",
    "oneof": "choice", "one_of": "choice", "grid": "choice", "grid_search": "choice",
    "arange": "range", "steps": "range", "glob": "file", "lines": "file",
    "read": "file", "open": "file", "rows": "zip", "product": "choice",
}  # fmt: skip
METHODS = {
    "bayes": "tpe", "bayesian": "tpe", "bayesopt": "tpe", "bayesian-optimization": "tpe",
    "bo": "tpe", "bohb": "tpe", "optuna": "tpe", "hyperopt": "tpe", "cma-es": "cmaes",
    "cma": "cmaes", "gaussian": "gp", "gaussian-process": "gp", "gpr": "gp", "botorch": "gp",
    "ax": "gp", "genetic": "nsgaii", "evolution": "nsgaii", "evolutionary": "nsgaii",
    "ga": "nsgaii", "nsga2": "nsgaii", "nsga-ii": "nsgaii", "latin": "lhs",
    "latin-hypercube": "lhs", "sobol": "lhs", "halton": "lhs", "qmc": "lhs", "quasirandom": "lhs",
    "shuffle": "shuffled", "grid-search": "grid", "grid_search": "grid", "gridsearch": "grid",
    "exhaustive": "grid", "product": "grid", "all": "grid", "sequential": "grid",
    "random-search": "random", "random_search": "random", "randomsearch": "random",
    "uniform": "random",
}  # fmt: skip
GOALS = {
    "lower": "min", "low": "min", "smaller": "min", "smallest": "min", "lowest": "min",
    "least": "min", "down": "min", "higher": "max", "high": "max", "larger": "max",
    "largest": "max", "highest": "max", "greater": "max", "most": "max", "up": "max",
}  # fmt: skip
STOP_KINDS = {
    "sha": "asha",
    "halving": "asha",
    "successive_halving": "asha",
    "successive-halving": "asha",
    "successivehalving": "asha",
    "async_hyperband": "asha",
    "bohb": "hyperband",
    "median_stopping": "median",
    "median-stopping": "median",
    "medianpruner": "median",
    "quantile": "percentile",
    "top": "percentile",
    "off": "none",
    "no": "none",
    "never": "none",
}
STOP_OPTIONS = {
    "type": "kind", "name": "kind", "warmup": "after_step", "warmup_steps": "after_step",
    "n_warmup_steps": "after_step", "grace_period": "after_step", "patience": "after_step",
    "n_startup_trials": "min_trials", "startup_trials": "min_trials",
    "min_samples_required": "min_trials", "interval": "every", "interval_steps": "every",
    "min_iter": "min_step", "min_resource": "min_step", "min_t": "min_step",
    "max_iter": "max_step", "max_resource": "max_step", "max_t": "max_step", "eta": "factor",
    "reduction_factor": "factor", "timeout": "kill_after", "grace": "kill_after",
    "min_early_stopping_rate": "rungs_skipped", "quantile": "percentile",
}  # fmt: skip
FILE_KEYS = {
    "parameters": "params", "param": "params", "space": "params", "search_space": "params",
    "hyperparameters": "params", "sweep": "params", "program": "command", "cmd": "command",
    "script": "command", "run": "command", "entrypoint": "command", "objective": "metric",
    "algorithm": "method", "search": "method", "sampler": "method", "strategy": "method",
    "run_cap": "trials", "n_trials": "trials", "num_trials": "trials", "max_trials": "trials",
    "num_samples": "trials", "samples": "trials", "early_terminate": "stop", "early_stop": "stop",
    "early_stopping": "stop", "pruner": "stop", "parallel": "max_parallel",
    "concurrency": "max_parallel", "max_concurrent": "max_parallel", "n_jobs": "max_parallel",
    "max_concurrent_trials": "max_parallel", "max_failures": "max_fails", "random_seed": "seed",
    "fixed": "constants", "defaults": "constants", "title": "name", "requires": "resources",
    "direction": "metric", "goal": "metric",
}  # fmt: skip
METRIC_KEYS = {
    "mode": "goal",
    "direction": "goal",
    "type": "goal",
    "metric": "name",
    "key": "name",
    "threshold": "target",
    "value": "target",
}
RESOURCES = {
    "gpu": "gpus", "num_gpus": "gpus", "n_gpus": "gpus", "ngpus": "gpus", "gres": "gpus",
    "cpu": "cpus", "cores": "cpus", "num_cpus": "cpus", "ncpus": "cpus", "memory": "mem",
    "ram": "mem", "licenses": "need",
    "vram": "gpu_mem", "gpu_memory": "gpu_mem", "gpumem": "gpu_mem", "devices": "gpu_ids",
    "device": "gpu_ids", "timeout": "time_limit", "time": "time_limit", "walltime": "time_limit",
    "environment": "env", "retry": "retries", "max_retries": "retries", "tags": "tag",
    "label": "tag", "labels": "tag", "workdir": "cwd", "dir": "cwd", "chdir": "cwd",
    "folder": "cwd", "nice": "priority",
}  # fmt: skip
PARAMETER_KEYS = {
    "choices": "values", "choice": "values", "options": "values", "categories": "values",
    "low": "min", "lower": "min", "minimum": "min", "start": "min", "from": "min", "high": "max",
    "upper": "max", "maximum": "max", "stop": "max", "end": "max", "to": "max", "q": "step",
    "distribution": "domain", "type": "domain", "range": "domain", "scale": "log",
    "if": "when", "condition": "when", "default": "value", "constant": "value",
}  # fmt: skip
# The other way round: W&B files are read with W&B's names.
WANDB_METHODS = {
    "tpe": "bayes",
    "bayesian": "bayes",
    "gp": "bayes",
    "cmaes": "bayes",
    "optuna": "bayes",
    "hyperopt": "bayes",
    "shuffled": "random",
    "lhs": "random",
}
WANDB_DISTRIBUTIONS = {
    "interval": "uniform",
    "float": "uniform",
    "real": "uniform",
    "int": "int_uniform",
    "integer": "int_uniform",
    "randint": "int_uniform",
    "log": "log_uniform_values",
    "loguniform": "log_uniform_values",
    "gaussian": "normal",
    "choice": "categorical",
    "choices": "categorical",
    "values": "categorical",
    "value": "constant",
    "fixed": "constant",
    "lognormal": "log_normal",
}
WANDB_KEYS = {
    "params": "parameters",
    "trials": "run_cap",
    "n_trials": "run_cap",
    "count": "run_cap",
    "cmd": "command",
    "script": "program",
    "objective": "metric",
    "stop": "early_terminate",
    "early_stop": "early_terminate",
    "pruner": "early_terminate",
    "search": "method",
    "algorithm": "method",
}
WANDB_PARAMETER_KEYS = {
    "choices": "values",
    "options": "values",
    "low": "min",
    "lower": "min",
    "high": "max",
    "upper": "max",
    "domain": "distribution",
    "type": "distribution",
    "step": "q",
    "mean": "mu",
    "std": "sigma",
    "weights": "probabilities",
    "params": "parameters",
}
PLACEHOLDERS = {
    "args": "params", "all": "params", "parameters": "params", "config": "params",
    "trial": "id", "index": "id", "number": "id", "job": "id", "run": "id", "outdir": "dir",
    "output": "dir", "output_dir": "dir", "folder": "dir", "path": "dir", "device": "gpu",
    "devices": "gpu", "cuda": "gpu",
}  # fmt: skip
ACTIONS = {  # of `stoker sweep`
    "list": "ls", "status": "show", "info": "show", "describe": "show", "more": "extend",
    "copy": "clone", "duplicate": "clone", "edit": "clone", "append": "add",
    "cancel": "stop", "kill": "stop", "pause": "stop", "continue": "resume",
    "start": "resume", "retry": "rerun", "restart": "rerun", "delete": "rm", "remove": "rm",
    "forget": "rm",
}  # fmt: skip
NONE: Mapping[str, str] = {}
