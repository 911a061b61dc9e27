"""`python -m simple_gpu_scheduler.scheduler`, and the names that scripts import from it."""

from stoker.compat.simple_gpu_scheduler.main import main
from stoker.compat.simple_gpu_scheduler.python_api import (
    GPU,
    GPUManager,
    read_commands_and_run,
    run_command_with_gpu,
)

__all__ = ["GPU", "GPUManager", "main", "read_commands_and_run", "run_command_with_gpu"]

if __name__ == "__main__":
    main()
