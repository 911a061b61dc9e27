"""`simple_hypersearch PATTERN -p NAME VALUES...`: a command line for each combination of values.

The order for a seed is that of random.shuffle over all combinations in grid order, so that sweeps
that others have published come out the same.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice, product
from math import prod

from stoker.compat.foreground.entry import Command, enter, print_bytes
from stoker.core.formats.byte_text import to_system
from stoker.errors import Error

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from typing import NoReturn

_LARGEST_SHUFFLE = 1 << 25  # 128 MB of numbers, and some ten seconds
_CHECKED = 1 << 18  # so many commands are made before the first is printed
_AT_A_TIME = 1000

_EPILOG = """
example:
  simple_hypersearch "train --lr {lr} -n {n}" --sampling-mode grid -p lr 0.1 0.01 -p n 2 3
prints
  train --lr 0.1 -n 2
  train --lr 0.1 -n 3
  train --lr 0.01 -n 2
  train --lr 0.01 -n 3

The pattern is Python's: {lr:>6}, {lr!r} and {lr[0]} work, {{ and }} are braces. A pattern of
several lines becomes one line for each combination, which a shell runs as one command.
"""


def main() -> NoReturn:
    enter(_load)


def _load() -> Command:
    import argparse  # noqa: F401  what takes time to import, before there is anything to lose
    import random  # noqa: F401

    return run


def run(arguments: list[str]) -> int:
    flags = _parser().parse_args(arguments)
    if flags.parameter is None:
        raise Error("there is no parameter to search over", "add -p NAME VALUE ...")
    values = {name: some for name, *some in flags.parameter}
    chosen = combinations(
        list(values.values()), flags.sampling_mode == "grid", flags.n_samples, flags.seed
    )
    commands = (on_one_line(fill(flags.command_pattern, values, point)) for point in chosen)
    first = list(islice(commands, _CHECKED))  # an error must not leave half of them
    _print(first)
    _print(commands)
    return 0


class HyperparameterSearch:
    """For programs that import it: the commands of a search."""

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
        """For `shuffled_grid` in an order that `random.seed` decides."""
        import random

        points = list(product(*self.parameters.values()))
        if self.sampling_mode == "shuffled_grid":
            random.shuffle(points)
        chosen = points[: self.n_samples]
        return [fill(self.command_pattern, self.parameters, point) for point in chosen]


def build_hyperparameter_search() -> HyperparameterSearch:
    """What the command line asks for; a `--seed` seeds `random` itself."""
    import random
    import sys

    flags = _parser().parse_args(sys.argv[1:])
    if flags.seed is not None:
        random.seed(flags.seed)
    values = {name: some for name, *some in flags.parameter or ()}
    return HyperparameterSearch(flags.command_pattern, flags.sampling_mode, flags.n_samples, values)


def _parser() -> argparse.ArgumentParser:
    import argparse

    parser = argparse.ArgumentParser(
        "simple_hypersearch",
        description="Print one command for each combination of parameter values.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command_pattern", help="the command, with {NAME} for each parameter")
    parser.add_argument(
        "--sampling-mode", choices=["shuffled_grid", "grid"], default="shuffled_grid",
        help="in random order (shuffled_grid, the default), or as listed (grid)",
    )  # fmt: skip
    parser.add_argument("--n-samples", type=int, metavar="N", help="only so many of them")
    parser.add_argument("--seed", type=int, help="the same order again")
    parser.add_argument(
        "-p", "--parameter", action="append", nargs="+", metavar=("NAME", "VALUES"),
        help="a parameter and its values: -p lr 0.01 0.001",
    )  # fmt: skip
    return parser


def combinations(
    values: list[list[str]], in_order: bool, wanted: int | None, seed: int | None
) -> Iterator[tuple[str, ...]]:
    """The combinations that were asked for, without making those that were not."""
    total = prod(len(some) for some in values)
    count = total if wanted is None else min(total, wanted) if wanted >= 0 else total + wanted
    if count <= 0:
        return iter(())
    if in_order:
        return islice(product(*values), count if count < total else None)
    return (combination(values, number) for number in chosen(total, count, seed))


def chosen(total: int, count: int, seed: int | None) -> Iterable[int]:
    """The first `count` numbers of a shuffled range."""
    import random

    chance = random.Random(seed)
    if total <= _LARGEST_SHUFFLE and (seed is not None or count > total // 4):
        numbers = array("I", range(total))
        chance.shuffle(numbers)
        return numbers[:count]
    if count > min(_LARGEST_SHUFFLE, total // 2):
        raise Error(
            f"{count} of {total} combinations are too many to shuffle",
            "give a smaller --n-samples, or --sampling-mode grid",
        )
    seen: dict[int, None] = {}
    while len(seen) < count:
        seen[chance.randrange(total)] = None
    return seen


def combination(values: list[list[str]], number: int) -> tuple[str, ...]:
    """
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
            f"the pattern has `{{{name}}}`, and there is no parameter `{name}`",
            f"add -p {name} VALUE ..., or write {{{{ and }}}} for braces",
        ) from None
    except (ValueError, AttributeError, IndexError, TypeError) as error:
        raise Error(
            f"the pattern cannot be filled in: {error}",
            "values are text; {{ and }} stand for braces",
        ) from None


def on_one_line(command: str) -> str:
    """A command of several lines as one line, which any POSIX shell runs as one command.

    >>> print(on_one_line("mkdir x\\necho '50%'"))
    (eval "$(printf 'mkdir x\\necho \\04750%%\\047')")
    """
    command = command.strip("\n")
    if "\n" not in command:
        return command
    for character, code in (("\\", r"\134"), ("'", r"\047"), ("%", "%%"), ("\n", r"\n")):
        command = command.replace(character, code)
    if command[0] == "-":  # not an option of printf
        command = rf"\055{command[1:]}"
    return f"(eval \"$(printf '{command}')\")"


def _print(commands: Iterable[str]) -> None:
    commands = iter(commands)
    while some := list(islice(commands, _AT_A_TIME)):
        print_bytes(to_system("".join(f"{command}\n" for command in some)))


if __name__ == "__main__":
    main()
