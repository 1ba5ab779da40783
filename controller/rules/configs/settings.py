"""Settings under Kafka's property names: the properties file, `--override name=value`, and what is refused.

A real cluster's `server.properties` can be used as it is. A name that Kafka knows and the program does not use is named
by `ignored`; a name that Kafka does not know, and a value of the wrong type, are refused with the nearest name and
with what is allowed. Values stay text here; `integer`, `flag`, ... read them.

Source: java.util.Properties (the file format), Kafka 3.9 `ConfigDef` (types and their texts).
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from controller.rules.configs import setting_names as names
from controller.rules.configs.doubles import parse_double
from controller.rules.configs.topic import split_list

Settings = dict[str, str]


class SettingError(ValueError):
    """A setting that cannot be used. The message is one line: the name, the value, what is allowed."""


#: name -> the values it may have, where Kafka lists them.
CHOICES: Final[dict[str, tuple[str, ...]]] = {
    "compression.type": ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    "kwob.isr.profile": ("P26", "P33", "P36", "P37"),
    "log.cleanup.policy": ("compact", "delete"),
    "log.message.timestamp.type": ("CreateTime", "LogAppendTime"),
    "security.inter.broker.protocol": ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
}

#: name -> the least value. Names that are not here may have any value of their type.
LEAST: Final[dict[str, int]] = {
    "broker.id": -1,
    "controlled.shutdown.max.retries": 0,
    "default.replication.factor": 1,
    "fetch.max.bytes": 1024,
    "group.initial.rebalance.delay.ms": 0,
    "group.max.size": 1,
    "leader.imbalance.check.interval.seconds": 1,
    "leader.imbalance.per.broker.percentage": 0,
    "log.index.interval.bytes": 0,
    "log.index.size.max.bytes": 4,
    "log.segment.bytes": 14,
    "log.segment.delete.delay.ms": 0,
    "max.incremental.fetch.session.cache.slots": 0,
    "message.max.bytes": 0,
    "min.insync.replicas": 1,
    "num.io.threads": 1,
    "num.network.threads": 1,
    "num.partitions": 1,
    "num.replica.fetchers": 1,
    "offset.metadata.max.bytes": 0,
    "offsets.commit.timeout.ms": 1,
    "offsets.retention.minutes": 1,
    "offsets.topic.num.partitions": 1,
    "offsets.topic.replication.factor": 1,
    "offsets.topic.segment.bytes": 1,
    "replica.fetch.backoff.ms": 0,
    "replica.fetch.max.bytes": 0,
    "replica.fetch.min.bytes": 0,
    "replica.fetch.response.max.bytes": 0,
    "replica.fetch.wait.max.ms": 0,
    "replica.high.watermark.checkpoint.interval.ms": 1,
    "replica.lag.time.max.ms": 1,
    "replica.socket.timeout.ms": 1,
    "replication.quota.window.num": 1,
    "replication.quota.window.size.seconds": 1,
    "request.timeout.ms": 1,
    "socket.request.max.bytes": 1,
    "zookeeper.connection.timeout.ms": 1,
    "zookeeper.max.in.flight.requests": 1,
    "zookeeper.session.timeout.ms": 1,
}

_INT_RANGE: Final = (-(2**31), 2**31 - 1)
_LONG_RANGE: Final = (-(2**63), 2**63 - 1)
_ALL_NAMES: Final = (
    names.BOOLEAN_NAMES
    | names.INT_NAMES
    | names.LONG_NAMES
    | names.DOUBLE_NAMES
    | names.LIST_NAMES
    | names.STRING_NAMES
    | names.FORMER_NAMES
    | names.OWN_NAMES
)


# -- loading ---------------------------------------------------------------------------------------------------------


def load(path: Path | None, overrides: Sequence[str] = (), between: Mapping[str, str] | None = None) -> Settings:
    """The settings of a properties file (none if `path` is None), `between`, then `name=value` overrides, checked.

    Raises: SettingError, also when the file cannot be read.
    """
    return load_text(_read(path) if path is not None else "", overrides, between)


def load_text(text: str, overrides: Sequence[str] = (), between: Mapping[str, str] | None = None) -> Settings:
    """The settings of the text of a properties file, those `between`, then `name=value` overrides; the last value of a
    name counts.

    Raises: SettingError for an unknown name, a value of the wrong type, or an override without `=`.
    """
    settings = parse_properties(text) | dict(between or {})
    for override in overrides:
        name, equals, value = override.partition("=")
        if not equals or not name.strip():
            raise SettingError(f"override {override!r}: expected name=value, for example num.partitions=3")
        settings[name.strip()] = value.strip()
    for name, value in settings.items():
        check(name, value)
    return settings


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a text file in UTF-8"
        raise SettingError(
            f"settings file {path}: {reason}; give a file in Kafka's server.properties format"
        ) from error


def ignored(settings: Mapping[str, str], used: Collection[str]) -> tuple[str, ...]:
    """Names that Kafka knows and the program does not use, sorted; to be logged once as `setting.ignored`."""
    return tuple(sorted(name for name in settings if name not in used))


# -- reading values --------------------------------------------------------------------------------------------------


def integer(settings: Mapping[str, str], name: str, default: int) -> int:
    """A whole number. Raises: SettingError."""
    if name not in settings:
        return default
    check(name, settings[name])
    return int(settings[name])


def flag(settings: Mapping[str, str], name: str, default: bool) -> bool:
    """`true` or `false`, in any case. Raises: SettingError."""
    if name not in settings:
        return default
    check(name, settings[name])
    return settings[name].lower() == "true"


def text(settings: Mapping[str, str], name: str, default: str | None = None) -> str | None:
    """The value as it is, or `default` where it is absent or empty."""
    return settings.get(name) or default


def words(settings: Mapping[str, str], name: str, default: Sequence[str] = ()) -> tuple[str, ...]:
    """A list, comma-separated, blanks around its words dropped."""
    if name not in settings:
        return tuple(default)
    return tuple(word.strip() for word in settings[name].split(",") if word.strip())


# -- what is allowed -------------------------------------------------------------------------------------------------


def check(name: str, value: str) -> None:
    """Refuses a name that Kafka does not know, and a value that its type does not allow.

    Raises: SettingError.
    """
    if name not in _ALL_NAMES and not name.startswith(names.KNOWN_PREFIXES):
        raise SettingError(_unknown(name, value))
    if (allowed := _violated(name, value)) is not None:
        raise SettingError(f"setting {name}: value {value!r} is not allowed; allowed: {allowed}")


def _unknown(name: str, value: str) -> str:
    near = difflib.get_close_matches(name, sorted(_ALL_NAMES), n=1, cutoff=0.0)[0]
    return (
        f"unknown setting {name} (value {value!r}): did you mean {near} ({_allowed_text(near)})? "
        "Allowed are the broker properties of Kafka 3.9 and kwob.isr.profile"
    )


def _violated(name: str, value: str) -> str | None:
    """What is allowed, if `value` is not; else None."""
    fine = True
    if name in names.BOOLEAN_NAMES:
        fine = value.lower() in ("true", "false")
    elif name in names.INT_NAMES or name in names.LONG_NAMES:
        low, high = _range(name)
        fine = _is_whole(value) and low <= int(value) <= high
    elif name in names.DOUBLE_NAMES:
        fine = _is_number(value)
    elif CHOICES.get(name):
        given = split_list(value) if name in names.LIST_NAMES else [value]
        fine = all(word in CHOICES[name] for word in given)
    return None if fine else _allowed_text(name)


def _allowed_text(name: str) -> str:
    if name in names.BOOLEAN_NAMES:
        return "true or false"
    if name in names.INT_NAMES or name in names.LONG_NAMES:
        low, high = _range(name)
        return f"a whole number from {low} to {high}"
    if name in names.DOUBLE_NAMES:
        return "a number"
    if CHOICES.get(name):
        return "one of " + ", ".join(CHOICES[name])
    return "a comma-separated list" if name in names.LIST_NAMES else "any text"


def _range(name: str) -> tuple[int, int]:
    low, high = _LONG_RANGE if name in names.LONG_NAMES else _INT_RANGE
    return LEAST.get(name, low), high


def _is_whole(value: str) -> bool:
    digits = value.removeprefix("-")
    return digits.isascii() and digits.isdigit() and len(digits) < 20


def _is_number(value: str) -> bool:
    try:
        parse_double(value.strip())
    except ValueError:
        return False
    return True


# -- the file format -------------------------------------------------------------------------------------------------

_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_BLANKS: Final = " \t\f"


def parse_properties(content: str) -> Settings:
    """The names and values of a properties file: comments (`#`, `!`), continued lines, escapes, `=`, `:` or a blank.

    Values lose blanks at their end, as Kafka trims them.
    Raises: SettingError for a broken unicode escape, naming the line.
    """
    settings: Settings = {}
    for number, line in _logical_lines(content):
        key_end = _key_end(line)
        rest = line[key_end:].lstrip(_BLANKS)
        value = rest[1:].lstrip(_BLANKS) if rest[:1] in ("=", ":") and rest else rest
        settings[_unescape(line[:key_end], number)] = _unescape(value, number).strip()
    return settings


def _logical_lines(content: str) -> Iterator[tuple[int, str]]:
    """Lines with their first number, comments and empty ones dropped, continued ones joined.

    What continues a line is no comment, and an empty one ends it; but where nothing stands before the backslash, the
    line has not begun yet, as in Java.
    """
    joined, start = "", 0
    for number, raw in enumerate(content.replace("\r\n", "\n").replace("\r", "\n").split("\n"), start=1):
        line = raw.lstrip(_BLANKS)
        if not joined:
            if not line or line[0] in "#!":
                continue
            start = number
        if _ends_in_odd_backslashes(line):
            joined += line[:-1]
            continue
        yield start, joined + line
        joined = ""
    if joined:
        yield start, joined


def _ends_in_odd_backslashes(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _key_end(line: str) -> int:
    escaped = False
    for position, character in enumerate(line):
        if not escaped and character in "=:" + _BLANKS:
            return position
        escaped = character == "\\" and not escaped
    return len(line)


def _unescape(escaped: str, line: int) -> str:
    out: list[str] = []
    characters = iter(escaped)
    for character in characters:
        if character != "\\":
            out.append(character)
            continue
        after = next(characters, "")
        if after == "u":
            digits = "".join(next(characters, "") for _ in range(4))
            if len(digits) != 4 or not all(digit in "0123456789abcdefABCDEF" for digit in digits):
                raise SettingError(
                    f"line {line}: \\u{digits} is not a unicode escape; expected four hexadecimal digits"
                )
            out.append(chr(int(digits, 16)))
        else:
            out.append(_ESCAPES.get(after, after))
    return "".join(out)
