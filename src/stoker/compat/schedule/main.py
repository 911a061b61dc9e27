"""`schedule "python train.py"`: wait for a GPU, run one task on it, free it.

Compatible with iterait/scheduler; also installed as `scheduler.py`.
"""

from __future__ import annotations

from stoker.compat.foreground.entry import Command, run_and_exit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


def main() -> NoReturn:
    run_and_exit(_load)


def _load() -> Command:
    from stoker.compat.schedule.command import run

    return run


if __name__ == "__main__":
    main()
