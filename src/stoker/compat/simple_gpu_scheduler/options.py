"""The command line of `simple_gpu_scheduler`."""

from __future__ import annotations

from stoker.core.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

_EPILOG = """
One command a line, for /bin/sh; a backslash at the end continues a line. A repeated id is another
slot; with several words each is one slot, so `--gpus 0,1 2,3` makes two slots of two GPUs.

The exit code is the number of failed commands, 101 for more than 100. SIGUSR1: let running commands
finish and start no more. Ctrl-C and SIGTERM: end them as well; what was not run is kept in a file.
"""


class Options(Record):
    gpus: list[str]
    jobs_per_gpu: int = 1
    commands_file: str | None = None
    exit_zero: bool = False


def parse(arguments: list[str]) -> Options:
    """What a command line means; argparse exits where it makes no sense, or asks for help."""
    usual = _usual(arguments)
    if usual is not None:
        return Options(usual)
    flags = _parser().parse_args(arguments)
    return Options(flags.gpus, flags.jobs_per_gpu, flags.commands_file, flags.exit_zero)


def _usual(arguments: list[str]) -> list[str] | None:
    """The words of a line that has nothing but `--gpus`; argparse would be a third of a short run.

    >>> _usual(["--gpus", "0", "1"]), _usual(["--gpus", "0", "--exit-zero"]), _usual(["--gpus"])
    (['0', '1'], None, None)
    """
    first, *words = arguments or [""]
    if first != "--gpus" or not words or any(word.startswith("-") for word in words):
        return None
    return words


def _parser() -> argparse.ArgumentParser:
    import argparse

    parser = argparse.ArgumentParser(
        "simple_gpu_scheduler",
        description="Run commands from stdin on GPUs, each on one that is free.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--gpus", nargs="+", required=True,
        help="ids for CUDA_VISIBLE_DEVICES: 0 1 2, or 0,1,2, or 0-2",
    )  # fmt: skip
    parser.add_argument(
        "--jobs-per-gpu", "--jobs_per_gpu", "--max_process_per_gpu", type=_positive, default=1,
        metavar="N", help="so many commands at a time on each",
    )  # fmt: skip
    parser.add_argument(
        "--commands-file", "--commands_file", metavar="FILE", help="read this instead of stdin"
    )
    parser.add_argument(
        "--exit-zero", action="store_true", help="exit with 0 whatever the commands returned"
    )
    return parser


def _positive(text: str) -> int:
    import argparse

    if not (text.isascii() and text.isdigit()) or not 1 <= int(text) <= 1000:
        raise argparse.ArgumentTypeError(f"`{text}` is not a number from 1 to 1000")
    return int(text)
