"""`simple_gpu_scheduler --gpus 0 1 2 < commands`: commands from stdin, one at a time on each GPU.

The implementation is in run.py.
"""

from __future__ import annotations

from stoker.compat.foreground.entry import Command, run_and_exit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


def main() -> NoReturn:
    run_and_exit(_load)


def _load() -> Command:
    from stoker.compat.simple_gpu_scheduler.run import run

    return run


if __name__ == "__main__":
    main()
