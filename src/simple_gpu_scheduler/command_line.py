"""`python -m simple_gpu_scheduler.command_line`: the same as `.scheduler`."""

from simple_gpu_scheduler.scheduler import (
    GPU,
    GPUManager,
    main,
    read_commands_and_run,
    run_command_with_gpu,
)

__all__ = ["GPU", "GPUManager", "main", "read_commands_and_run", "run_command_with_gpu"]

if __name__ == "__main__":
    main()
