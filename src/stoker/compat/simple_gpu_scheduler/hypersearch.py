"""`simple_hypersearch PATTERN -p NAME VALUES...`: a command line for each combination of values.

With a seed, the order is that of random.shuffle over all combinations in grid order, as in the
original, so that published sweeps can be reproduced.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice, product
from math import prod

from stoker.compat.foreground.entry import print_bytes, run_and_exit
from stoker.errors import Error
from stoker.text.byte_text import to_system

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

_MAX_SHUFFLE = 1 << 25  # 128 MiB of numbers, about ten seconds
_CHECKED = 1 << 18  # commands that are generated before the first is printed
_BATCH_SIZE = 1000

_EPILOG = """
example:
  simple_hypersearch "train --lr {lr} -n {n}" --sampling-mode grid -p lr 0.1 0.01 -p n 2 3
prints
  train --lr 0.1 -n 2
  train --lr 0.1 -n 3
  train --lr 0.01 -n 2
  train --lr 0.01 -n 3

The pattern is a Python format string: {lr:>6}, {lr!r} and {lr[0]} work; {{ and }} are braces.
A pattern of several lines is printed as one line per combination; a shell runs it as one command.
"""


def main() -> None:
    run_and_exit(__name__)


def run(arguments: list[str]) -> int:
    flags = _parser().parse_args(arguments)
    if flags.parameter is None:
        raise Error("no parameter given", "add one with -p NAME VALUE ...")
    values = {name: some for name, *some in flags.parameter}
    points = combinations(
        list(values.values()), flags.sampling_mode == "grid", flags.n_samples, flags.seed
    )
    commands = (on_one_line(fill(flags.command_pattern, values, point)) for point in points)
    first = list(islice(commands, _CHECKED))  # so that an error prints no partial output
    _print(first)
    _print(commands)
    return 0


class HyperparameterSearch:
    """The commands of a search, for programs that import this class."""

    def __init__(
        self,
        command_pattern: str,
        sampling_mode: str,
        n_samples: int | None,
        parameters: Mapping[str, Iterable[object]],
    ) -> None:
        self.command_pattern = command_pattern
        self.sampling_mode = sampling_mode
        self.n_samples = n_samples
        self.parameters = {name: [str(one) for one in some] for name, some in parameters.items()}

    def get_commands(self) -> list[str]:
        """The commands; for `shuffled_grid` in the order given by the global `random` state."""
        import random

        points = list(product(*self.parameters.values()))
        if self.sampling_mode == "shuffled_grid":
            random.shuffle(points)
        points = points[: self.n_samples]
        return [fill(self.command_pattern, self.parameters, point) for point in points]


def build_hyperparameter_search() -> HyperparameterSearch:
    """Build the search from `sys.argv`; `--seed` seeds the global `random` state."""
    import random

    flags = _parser().parse_args(sys.argv[1:])
    if flags.seed is not None:
        random.seed(flags.seed)
    values = {name: some for name, *some in flags.parameter or ()}
    return HyperparameterSearch(flags.command_pattern, flags.sampling_mode, flags.n_samples, values)


def _parser() -> argparse.ArgumentParser:
    import argparse  # not at the top, where Ctrl-C prints a traceback

    parser = argparse.ArgumentParser(
        "simple_hypersearch",
        description="Print one command for each combination of parameter values.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command_pattern", help="the command, with {NAME} for each parameter")
    parser.add_argument(
        "--sampling-mode",
        choices=["shuffled_grid", "grid"],
        default="shuffled_grid",
        help="order of the combinations: random (shuffled_grid, the default) or as listed (grid)",
    )
    parser.add_argument(
        "--n-samples", type=int, metavar="N", help="print only the first N combinations"
    )
    parser.add_argument("--seed", type=int, help="random seed, to reproduce an order")
    parser.add_argument(
        "-p",
        "--parameter",
        action="append",
        nargs="+",
        metavar=("NAME", "VALUES"),
        help="a parameter and its values: -p lr 0.01 0.001",
    )
    return parser


def combinations(
    values: list[list[str]], in_order: bool, wanted: int | None, seed: int | None
) -> Iterator[tuple[str, ...]]:
    """The first `wanted` combinations, generated lazily."""
    total = prod(len(some) for some in values)
    count = total if wanted is None else min(total, wanted) if wanted >= 0 else total + wanted
    if count <= 0:
        return iter(())
    if in_order:
        return islice(product(*values), count if count < total else None)
    return (combination(values, number) for number in chosen(total, count, seed))


def chosen(total: int, count: int, seed: int | None) -> Iterable[int]:
    """The first `count` numbers of the shuffled `range(total)`.

    Raises Error if they do not fit in memory.
    """
    import random

    rng = random.Random(seed)
    if total <= _MAX_SHUFFLE and (seed is not None or count > total // 4):
        numbers = array("I", range(total))
        rng.shuffle(numbers)
        return numbers[:count]
    if count > min(_MAX_SHUFFLE, total // 2):
        raise Error(
            f"{count} of {total} combinations are too many to shuffle",
            "use a smaller --n-samples or --sampling-mode grid",
        )
    seen: dict[int, None] = {}
    while len(seen) < count:
        seen[rng.randrange(total)] = None
    return seen


def combination(values: list[list[str]], number: int) -> tuple[str, ...]:
    """The combination at position `number` of the grid.

    >>> [combination([["a", "b"], ["x", "y", "z"]], number) for number in (0, 1, 3)]
    [('a', 'x'), ('a', 'y'), ('b', 'x')]
    """
    found = []
    for some in reversed(values):
        number, place = divmod(number, len(some))
        found.append(some[place])
    return tuple(reversed(found))


def fill(pattern: str, names: Iterable[str], point: tuple[str, ...]) -> str:
    try:
        return pattern.format_map(dict(zip(names, point, strict=True)))
    except KeyError as error:
        name = error.args[0]
        raise Error(
            f"the pattern uses `{{{name}}}`, but there is no parameter `{name}`",
            f"add -p {name} VALUE ..., or write {{{{ and }}}} for literal braces",
        ) from None
    except (ValueError, AttributeError, IndexError, TypeError) as error:
        raise Error(
            f"cannot format the pattern: {error}",
            "values are strings; write {{ and }} for literal braces",
        ) from None


def on_one_line(command: str) -> str:
    """Encode a command of several lines as one line that any POSIX shell runs as one command.

    >>> print(on_one_line("mkdir x\\necho '50%'"))
    (eval "$(printf 'mkdir x\\necho \\04750%%\\047')")
    """
    command = command.strip("\n")
    if "\n" not in command:
        return command
    for character, code in (("\\", r"\134"), ("'", r"\047"), ("%", "%%"), ("\n", r"\n")):
        command = command.replace(character, code)
    if command[0] == "-":  # printf would parse it as an option
        command = rf"\055{command[1:]}"
    return f"(eval \"$(printf '{command}')\")"


def _print(commands: Iterable[str]) -> None:
    commands = iter(commands)
    while some := list(islice(commands, _BATCH_SIZE)):
        print_bytes(to_system("".join(f"{command}\n" for command in some)))


if __name__ == "__main__":
    main()
