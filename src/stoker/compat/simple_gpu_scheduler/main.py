"""`simple_gpu_scheduler --gpus 0 1 2 < commands`: one command at a time on each GPU."""

from stoker.compat.foreground.entry import run_and_exit


def main() -> None:
    run_and_exit("stoker.compat.simple_gpu_scheduler.run")


if __name__ == "__main__":
    main()
