"""The command line of `simple_gpu_scheduler`."""

from __future__ import annotations

from stoker.core.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

_EPILOG = """
Each line is a command for /bin/sh; a trailing backslash continues it on the next line. A repeated
ID is another slot on that GPU. Several words are one slot each: `--gpus 0,1 2,3` makes two slots of
two GPUs.

The exit code is the number of failed commands, or 101 if more than 100 failed. SIGUSR1 lets running
commands finish and starts no others. Ctrl-C and SIGTERM also terminate the running commands.
Commands that did not finish or start are saved to a file.
"""


class Options(Record):
    gpus: list[str]
    jobs_per_gpu: int = 1
    commands_file: str | None = None
    exit_zero: bool = False


def parse(arguments: list[str]) -> Options:
    """Parse a command line; argparse exits for `--help` and usage errors."""
    gpus = _parse_gpus_only(arguments)
    if gpus is not None:
        return Options(gpus)
    flags = _parser().parse_args(arguments)
    return Options(flags.gpus, flags.jobs_per_gpu, flags.commands_file, flags.exit_zero)


def _parse_gpus_only(arguments: list[str]) -> list[str] | None:
    """The values of `--gpus` if it is the only option.

    This avoids importing argparse, which takes a third of the time of a short run.

    >>> _parse_gpus_only(["--gpus", "0", "1"])
    ['0', '1']
    >>> _parse_gpus_only(["--gpus"]), _parse_gpus_only(["--gpus", "0", "--exit-zero"])
    (None, None)
    """
    first, *words = arguments or [""]
    if first != "--gpus" or not words or any(word.startswith("-") for word in words):
        return None
    return words


def _parser() -> argparse.ArgumentParser:
    import argparse

    parser = argparse.ArgumentParser(
        "simple_gpu_scheduler",
        description="Run the commands read from stdin, each on a free GPU.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--gpus",
        nargs="+",
        required=True,
        help="GPU IDs for CUDA_VISIBLE_DEVICES: 0 1 2, or 0,1,2, or 0-2",
    )
    parser.add_argument(
        "--jobs-per-gpu",
        "--jobs_per_gpu",
        "--max_process_per_gpu",
        type=_positive,
        default=1,
        metavar="N",
        help="number of commands that run at the same time on each GPU (default: 1)",
    )
    parser.add_argument(
        "--commands-file",
        "--commands_file",
        metavar="FILE",
        help="read commands from FILE instead of stdin",
    )
    parser.add_argument(
        "--exit-zero", action="store_true", help="exit with 0 even if commands failed"
    )
    return parser


def _positive(text: str) -> int:
    import argparse

    if not (text.isascii() and text.isdigit()) or not 1 <= int(text) <= 1000:
        raise argparse.ArgumentTypeError(f"`{text}` is not a number from 1 to 1000")
    return int(text)
