"""What a message may say, as a row of a table: how it begins, the whole of it, what follows from it. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

#: A topic and a partition; the last hyphen divides.
TP: Final = r"(?P<topic>[\w.-]+)-(?P<partition>\d+)"
#: Broker ids with commas between.
IDS: Final = r"[\d, ]*"

#: Columns of a `Fact`, as far as the message has them.
Said = dict[str, object]
Match = re.Match[str]


class Text(NamedTuple):
    """A message: how it begins after the speaker, the whole of it, and what it says.

    `begins` is empty where the first word differs from one message to the next; else it has the whole first word.
    """

    begins: str
    pattern: re.Pattern[str]
    says: Callable[[Match], Iterable[Said]]


def ids(text: str | None) -> list[int]:
    """`1,2,3`, `1, 2` or nothing."""
    return [int(x) for x in (text or "").replace(" ", "").split(",") if x]


def partition_in(m: Match) -> Said:
    """The topic and the partition of a match with `TP`."""
    return {"topic": m["topic"], "partition": int(m["partition"])}


def number(m: Match, name: str) -> int | None:
    """The group as a number; None where the pattern has no such group, or it is not there."""
    value = m[name] if name in m.re.groupindex else None
    return None if value is None else int(value)
