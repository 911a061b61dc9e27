"""`schedule "python train.py"`: wait for a GPU, run one task on it, free it.

Compatible with iterait/scheduler; also installed as `scheduler.py`.
"""

from stoker.compat.foreground.entry import run_and_exit


def main() -> None:
    run_and_exit("stoker.compat.schedule.command")


if __name__ == "__main__":
    main()
