"""Command lines as Kafka's tools read them (joptsimple): pure, no tool is known here.

Long options only and never abbreviated; `--opt value`, `--opt=value` and `-opt value`; stray words are ignored; values
are converted when they are used. Source: spec admin.md §0.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from controller.admin.cluster.failures import ToolFailure

_HELP_WIDTH: Final = 80
_INT: Final = range(-(2**31), 2**31)
_LONG: Final = range(-(2**63), 2**63)
_DIGITS_MAX: Final = len(str(2**63))


class OptionFailure(ToolFailure):
    """The command line does not parse, or a value does not convert."""

    def __init__(self, message: str, java_class: str) -> None:
        super().__init__(message, java_class=f"joptsimple.{java_class}")


class UsageExit(Exception):
    """Print the message, then the table of options, both on standard error; exit with 1."""


class VersionAsked(Exception):
    """`--version`: print the version on standard output; exit with 0."""


class Answered(Exception):
    """The command line alone is answered, nobody is asked: print the text on standard output; exit with 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option. `argument` describes its value in the help; None makes it a flag. `optional` values may be absent."""

    name: str
    help: str
    argument: str | None = None
    type: str = "String"
    optional: bool = False
    default: str | None = None

    def __str__(self) -> str:
        return f"[{self.name}]"


#: kwob's own addition to every tool.
JSON: Final = Option(name="json", help="Print the result as one JSON value, for machines.")
#: Taken off before the rest is parsed (see `commands.split_compat`); here for the help.
COMPAT: Final = Option(
    name="compat",
    argument="2.0, 2.6, 3.9 or 4.1",
    help="Work as the tool of this Kafka did; 2.x on ZooKeeper with --zookeeper where that version did. Default: 3.9.",
)
HELP: Final = Option(name="help", help="Print usage information.")
VERSION: Final = Option(name="version", help="Print the version.")
COMMAND_CONFIG: Final = Option(
    name="command-config",
    argument="Admin client property file",
    help="Property file for the admin client. Used of it: client.id, request.timeout.ms, default.api.timeout.ms.",
)


class Arguments:
    """A parsed command line."""

    def __init__(self, table: OptionTable, given: dict[str, list[str]], argv: Sequence[str]) -> None:
        self.table = table
        self._given = given
        self.argv = tuple(argv)
        #: What stands before the second option in a complaint about two: 2.0 forgot the blank.
        self.conflict_gap = " "
        #: What the checks have to say that is no refusal; the tool prints it on standard error before anything else.
        self.warnings: list[str] = []

    def warn(self, text: str) -> None:
        """Notes a warning of the checks."""
        self.warnings.append(text)

    def has(self, name: str) -> bool:
        """Whether the option was given."""
        return name in self._given

    @property
    def names(self) -> list[str]:
        """The options that were given, in order."""
        return list(self._given)

    def values(self, name: str) -> list[str]:
        """All values of the option in order; its default, if it has one and was not given. None of no option here."""
        if name not in self._given:
            default = self.table[name].default if name in self.table else None
            return [] if default is None else [default]
        return list(self._given[name])

    def value(self, name: str) -> str | None:
        """The one value. Raises OptionFailure when there are several."""
        values = self.values(name)
        if len(values) > 1:
            raise OptionFailure(
                f"Found multiple arguments for option {name}, but you asked for only one",
                "MultipleArgumentsForOptionException",
            )
        return values[0] if values else None

    def integer(self, name: str) -> int | None:
        """The one value as a Java int or long, as the option's type says. Raises OptionFailure."""
        text = self.value(name)
        if text is None:
            return None
        number = java_integer(text, _LONG if self.table[name].type == "Long" else _INT)
        if number is None:
            raise OptionFailure(f"Cannot parse argument '{text}' of option {name}", "OptionArgumentConversionException")
        return number

    # What Kafka's CommandLineUtils checks.

    def count(self, names: Iterable[str]) -> int:
        """How many of these options were given."""
        return sum(self.has(name) for name in names)

    def require(self, *names: str) -> None:
        """Raises UsageExit for the first that is absent."""
        for name in names:
            if not self.has(name):
                raise UsageExit(f'Missing required argument "[{name}]"')

    def refuse_with(self, name: str, *others: str) -> None:
        """Raises UsageExit when `name` was given together with one of the others; the first in their order."""
        if self.has(name):
            for other in others:
                if self.has(other):
                    raise UsageExit(f'Option "[{name}]" can\'t be used with option{self.conflict_gap}"[{other}]"')


class OptionTable:
    """The options of one tool: parses command lines and prints the help."""

    def __init__(self, description: str, options: Iterable[Option], *, version: bool = True) -> None:
        self.description = description
        extra = (HELP, JSON, COMPAT, *((VERSION,) if version else ()))
        self._options: dict[str, Option] = {option.name: option for option in (*options, *extra)}

    def __getitem__(self, name: str) -> Option:
        return self._options[name]

    def __contains__(self, name: object) -> bool:
        return name in self._options

    @property
    def names(self) -> list[str]:
        """All options by name."""
        return sorted(self._options)

    def parse(self, argv: Sequence[str]) -> Arguments:
        """Raises OptionFailure for an option that is not known or lacks its value."""
        given: dict[str, list[str]] = {}
        words = list(argv)
        at = 0
        while at < len(words):
            word = words[at]
            at += 1
            if word == "--":
                break
            if not _looks_like_option(word):
                continue
            option, value = self._recognise(word)
            values = given.setdefault(option.name, [])
            if option.argument is None:
                continue
            if value is None:
                value, at = _next_value(option, words, at)
            if value is not None:
                values.append(value)
        return Arguments(self, given, argv)

    def _recognise(self, word: str) -> tuple[Option, str | None]:
        """The option, and the value behind `=` (an empty one is a value, too)."""
        name, equals, value = word.removeprefix("-").removeprefix("-").partition("=")
        option = self._options.get(name)
        if option is None:
            unknown = name if word.startswith("--") else name[:1]
            raise OptionFailure(f"{unknown} is not a recognized option", "UnrecognizedOptionException")
        return option, value if equals else None

    def help(self) -> str:
        """The table of options, two columns, 80 wide."""
        left = max(len("Option"), *(min(len(_head(o)), 38) for o in self._options.values())) + 2
        lines = [f"{'Option':<{left}}Description", f"{'------':<{left}}-----------"]
        for name in self.names:
            option = self._options[name]
            text = option.help if option.default is None else f"{option.help} (default: {option.default})"
            heads = textwrap.wrap(_head(option), left - 2, subsequent_indent="  ", break_on_hyphens=False)
            texts = textwrap.wrap(text, _HELP_WIDTH - left, subsequent_indent="  ", break_on_hyphens=False)
            rows = max(len(heads), len(texts))
            heads += [""] * (rows - len(heads))
            texts += [""] * (rows - len(texts))
            lines += [f"{h:<{left}}{t}".rstrip() for h, t in zip(heads, texts, strict=True)]
        return "\n".join(lines)


def option_names(argv: Sequence[str]) -> set[str]:
    """The options of a command line that is not parsed yet, as they stand there."""
    return {word.lstrip("-").partition("=")[0] for word in argv if word.startswith("-")}


def java_split(text: str, separator: str = ",") -> list[str]:
    """As Java splits: empty pieces at the end are dropped, but empty text is one empty piece."""
    return without_empty_end(text.split(separator), text)


def without_empty_end(pieces: list[str], text: str) -> list[str]:
    """What Java's split leaves of the pieces of a text."""
    while pieces and not pieces[-1]:
        pieces.pop()
    return pieces if text else [""]


def java_integer(text: str, allowed: range = _INT) -> int | None:
    """What Java's `Integer.parseInt` (or `Long.parseLong`) reads: an optional sign and digits, in range; else None."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit()):
        return None
    digits = digits.lstrip("0") or "0"
    if len(digits) > _DIGITS_MAX:  # of thousands of digits Python would refuse to make a number
        return None
    number = int(text[0] + digits) if text[0] == "-" else int(digits)
    return number if number in allowed else None


def parse_integer(text: str) -> int:
    """As `java_integer`. Raises ToolFailure with Java's text."""
    number = java_integer(text)
    if number is None:
        raise ToolFailure(f'For input string: "{text}"', java_class="java.lang.NumberFormatException")
    return number


def _looks_like_option(word: str) -> bool:
    return len(word) > 1 and word.startswith("-")


def _next_value(option: Option, words: Sequence[str], at: int) -> tuple[str | None, int]:
    if at < len(words) and not (option.optional and _looks_like_option(words[at])):
        return words[at], at + 1
    if option.optional:
        return None, at
    raise OptionFailure(f"Option {option.name} requires an argument", "OptionMissingRequiredArgumentException")


def _head(option: Option) -> str:
    if option.argument is None:
        return f"--{option.name}"
    described = f"{option.type}: {option.argument}" if option.argument else option.type
    return f"--{option.name} " + (f"[{described}]" if option.optional else f"<{described}>")
