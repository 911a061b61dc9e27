"""The options of a command as data, and their parser.

Hand-written for two reasons: importing argparse takes 8 of the 30 ms that `stoker submit` may take,
and argparse cannot stop at the first word of the user's command. The same tables produce `--help`,
shell completion and the reference page.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from stoker.errors import Error, Invalid, UsageError, name_option
from stoker.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Option(Record):
    names: str  # "-n --name"
    help: str
    value: str | None = None  # its name in the help text; None for a switch
    convert: Callable[[str], object] | None = None
    many: bool = False
    several: bool = False  # its value is a list: all arguments up to the next option
    optional: bool = False  # a value is given only as --name=VALUE; --name alone converts ""
    completes: str = ""  # words for shell completion: `a|b`, or a kind of cli/completion

    @property
    def key(self) -> str:
        return self.names.split()[-1].lstrip("-").replace("-", "_")

    @property
    def value_words(self) -> str:
        """The value after the names in help texts: ` N`, `[=LIST]` or nothing."""
        if self.value is None:
            return ""
        return f"[={self.value}]" if self.optional else f" {self.value}"

    @property
    def takes_next(self) -> bool:
        """Whether the argument after the option is its value."""
        return self.value is not None and not self.optional


class Verb(Record):
    name: str
    usage: str
    summary: str
    options: tuple[Option, ...] = ()
    examples: tuple[tuple[str, str], ...] = ()
    text: str = ""
    keeps_words: bool = False  # the first argument that is not an option begins a user's command
    aliases: tuple[str, ...] = ()
    words: str = "none"  # what its arguments are: jobs, files, actions, none
    minus_words: bool = False  # `-5` and `-baseline` are arguments, not options
    has_json: bool = True


JSON = Option("--json", "print JSON instead of text")
HELP = Option("-h --help", "show this help message and exit")
DEBUG = Option("--debug", "show a traceback when something fails")
_GLOBAL = (HELP, DEBUG)


class Parsed:
    """Values by option key, the other arguments, and whether `--` came before them."""

    def __init__(self, values: dict[str, Any], words: list[str], dashed: bool) -> None:
        self.values = values
        self.words = words
        self.dashed = dashed

    def __getitem__(self, key: str) -> Any:
        return self.values.get(key)


def all_options(verb: Verb) -> tuple[Option, ...]:
    return (*verb.options, *((JSON,) if verb.has_json else ()), *_GLOBAL)


def parse(verb: Verb, arguments: list[str]) -> Parsed:
    """Parse the arguments of a command. Raises UsageError for an invalid argument."""
    table = {name: option for option in all_options(verb) for name in option.names.split()}
    values: dict[str, Any] = {}
    words: list[str] = []
    dashed = False
    rest = list(reversed(arguments))
    while rest:
        word = rest.pop()
        if word == "--":
            dashed = True
            words += reversed(rest)
            break
        is_minus_word = verb.minus_words and word[:2] != "--" and word not in table
        if word[:1] != "-" or word == "-" or is_minus_word:
            words.append(word)
            if verb.keeps_words:
                words += reversed(rest)
                break
            continue
        name, equals, given = word.partition("=")
        if word[:2] != "--" and name not in table and word[:2] in table:
            name, equals, given = word[:2], "=", word[2:]  # -n5
        option = table.get(name)
        if option is None:
            raise _unknown(verb, name, table)
        if option.value is None:
            if equals:
                raise UsageError(f"`{name}` takes no value", f"see `stoker {verb.name} --help`")
            values[option.key] = True
            continue
        if not equals and option.takes_next:
            if not rest:
                raise UsageError(f"`{name}` needs a value ({option.value})")
            given = rest.pop()
        if option.several:
            taken = [given]
            while rest and rest[-1] != "--" and rest[-1].partition("=")[0] not in table:
                taken.append(rest.pop())
            values.setdefault(option.key, []).append(taken)
            continue
        _set(values, option, name, given)
    if words and verb.words == "none" and not values.get("help"):
        raise UsageError(
            f"`stoker {verb.name}` takes no arguments, but got `{words[0]}`",
            f"see `stoker {verb.name} --help`",
        )
    return Parsed(values, words, dashed)


def own_words(verb: Verb, arguments: list[str]) -> list[str]:
    """Return the arguments before the user's command, whether they are valid or not."""
    table = {name: option for option in all_options(verb) for name in option.names.split()}
    own = []
    rest = iter(arguments)
    for word in rest:
        if word in ("-", "--") or word[:1] != "-":
            break
        own.append(word)
        option = table.get(word)
        if option is not None and option.takes_next:
            next(rest, None)
    return own


def _set(values: dict[str, Any], option: Option, name: str, given: str) -> None:
    if "\0" in given:
        raise UsageError(f"the value of `{name}` holds a NUL byte")
    try:
        value = option.convert(given) if option.convert else given
    except ValueError:
        raise UsageError(f"`{name} {given}`: the value is not {option.value}") from None
    except Error as error:
        raise name_option(f"`{name}`", error) from None
    if option.many:
        values.setdefault(option.key, []).append(value)
    else:
        values[option.key] = value


def _unknown(verb: Verb, name: str, table: dict[str, Option]) -> UsageError:
    from stoker.text.known_words import OPTIONS, WITHOUT
    from stoker.text.suggestions import nearest

    takes_jobs = "--gpus" in table
    near = nearest(name, table, OPTIONS)
    hint = f"did you mean `{near}`?" if near else f"see `stoker {verb.name} --help`"
    if name in WITHOUT and takes_jobs:
        hint = WITHOUT[name]
    if name == "--host":
        hint = f"put it before the command: stoker --host HOST {verb.name}"
    return UsageError(f"`stoker {verb.name}` has no option `{name}`", hint)


def whole_number(text: str) -> int:
    if not (text.lstrip("-").isascii() and text.lstrip("-").isdigit()):
        raise UsageError(f"`{text}` is not an integer")
    value = int(text)
    if abs(value) > 10**9:
        raise UsageError(f"`{text}` is too large")
    return value


def count(text: str) -> int:
    value = whole_number(text)
    if value < 0:
        raise Invalid(f"must not be negative, but is {value}")
    return value


def positive(text: str) -> int:
    value = whole_number(text)
    if value < 1:
        raise Invalid(f"must be 1 or more, not {value}")
    return value


def smoothing(text: str) -> float:
    """The weight of an exponential moving average."""
    try:
        weight = float(text)
    except ValueError:
        weight = -1.0
    if not 0 <= weight <= 0.999:
        raise Invalid(f"must be 0 to 0.999; `{text}` is not a smoothing weight", "for example 0.6")
    return weight


def check_action(verb: str, action: str, actions: Collection[str]) -> None:
    """Raise UsageError if a command has no such action."""
    if action not in actions:
        raise UsageError(
            f"`{action}` is not an action of `stoker {verb}`", f"actions: {', '.join(actions)}"
        )
