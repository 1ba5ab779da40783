"""What a finding is, and how its sentence says names, numbers and times. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import IntEnum
from typing import Any, Final

#: Named in one sentence at most.
NAMED_MAX: Final = 5


class Severity(IntEnum):
    """How much a finding matters to someone on call."""

    CRITICAL = 0
    WARNING = 1
    INFO = 2


@dataclass(frozen=True, slots=True)
class Where:
    """One condition on a column: `op` is `=`, `!=`, `>`, `>=`, `<`, `is true`, `is false`, `is null` or
    `is not null`. Values are of the table."""

    column: str
    op: str = "="
    value: str | int | None = None

    def sql(self) -> str:
        """As SQL, which Spark and others take."""
        if self.op.startswith("is"):
            return f"{self.column} {self.op}"
        value = "'" + self.value.replace("'", "''") + "'" if isinstance(self.value, str) else self.value
        return f"{self.column} {self.op} {value}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One sentence, and the rows it rests on: those of `table` where all of `where` hold. `rows` is their number."""

    severity: Severity
    text: str
    table: str
    rows: int
    where: tuple[Where, ...] = ()
    rank: int = 0
    #: the stretch of time that it is about, where it is about one
    from_ts: int | None = None
    to_ts: int | None = None

    @property
    def filter(self) -> str:
        """The rows as a condition in SQL; empty: all of the table."""
        return " and ".join(one.sql() for one in self.where)

    def as_row(self) -> dict[str, Any]:
        """The row of the `findings` table."""
        severity = self.severity.name.lower()
        own_row = {"rank": self.rank, "severity": severity, "text": self.text, "table": self.table, "rows": self.rows}
        return {**own_row, "filter": self.filter, "from_ts": self.from_ts, "to_ts": self.to_ts}


# -- words ------------------------------------------------------------------------------------------------------------


def name_of(row: dict[str, Any]) -> str:
    """`orders-7`: the partition of a row."""
    return f"{row['topic']}-{row['partition']}"


def at(row: dict[str, Any]) -> tuple[Where, ...]:
    """The rows of that partition."""
    return Where("topic", value=row["topic"]), Where("partition", value=row["partition"])


def listed(names: Sequence[str], *, of: int | None = None) -> str:
    """`a, b, c and 7 more`; `of` is how many there are, where `names` are only some."""
    left = (len(names) if of is None else of) - NAMED_MAX
    return ", ".join(names[:NAMED_MAX]) + (f" and {left} more" if left > 0 else "")


def between(row: dict[str, Any]) -> str:
    """When, by the columns `from_ts` and `to_ts`: `at 10:00:01 UTC`, `from 10:00:01 to 10:07:30 UTC`."""
    start, end = clock(row["from_ts"]), clock(row["to_ts"])
    return f"at {start} UTC" if start == end else f"from {start} to {end} UTC"


def clock(ts: int | None) -> str:
    """UTC time of day of `ts`."""
    return "–" if ts is None else datetime.fromtimestamp(ts / 1000, UTC).strftime("%H:%M:%S")


def count(n: int, noun: str, plural: str | None = None) -> str:
    """`1 partition`, `3 partitions`, `100,000 partitions`."""
    return f"{n} {noun}" if n == 1 else f"{n:,} {plural or noun + 's'}"


def size(n: float | None) -> str:
    """Bytes for readers: `812 B`, `1.5 MB`, by powers of ten."""
    if n is None:
        return "–"
    for unit in ("B", "kB", "MB", "GB"):
        if n < 1000:
            return f"{n:.0f} {unit}" if unit == "B" else f"{n:.1f} {unit}"
        n /= 1000
    return f"{n:.1f} TB"


def seconds(ms: int | None) -> str:
    """A duration for readers: `85 ms`, `4.2 s`, `3 min 5 s`, `2 h 10 min`, `9 d 4 h`."""
    if ms is None:
        return "–"
    if ms < 1000:
        return f"{ms} ms"
    if ms < 60_000:
        return f"{ms / 1000:.1f} s"
    if ms < 3_600_000:
        return f"{ms // 60_000} min {ms // 1000 % 60} s"
    if ms < 2 * 86_400_000:
        return f"{ms // 3_600_000} h {ms // 60_000 % 60} min"
    return f"{ms // 86_400_000:,} d {ms // 3_600_000 % 24} h"
