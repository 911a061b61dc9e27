"""`simple_hypersearch` as a module, and the names that scripts import from it."""

from stoker.compat.simple_gpu_scheduler.hypersearch import (
    HyperparameterSearch,
    build_hyperparameter_search,
)
from stoker.compat.simple_gpu_scheduler.hypersearch import main as generate_commands

__all__ = ["HyperparameterSearch", "build_hyperparameter_search", "generate_commands"]
