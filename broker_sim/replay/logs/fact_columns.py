"""Facts as narrow columns, and back: what every fact has and what the many have are typed columns of their own; what
the rare ones have besides is one column, pickled, null for the many. A file is its number in a list. Pure.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Any, Final

import pyarrow as pa

from broker_sim.replay.grouped import column_lists
from broker_sim.replay.logs.facts import Fact

_FIRST_RARE: Final = Fact._fields.index("epoch")
_COMMON: Final = Fact._fields[:_FIRST_RARE]
_RARE: Final = Fact._fields[_FIRST_RARE : Fact._fields.index("file")]
_NOTHING: Final = (None,) * len(_RARE)
#: Spark types; `bigint` where not named.
_TYPES: Final = {
    "broker": "int",
    "what": "string",
    "topic": "string",
    "partition": "int",
    "replica": "int",
    "req_epoch": "int",
    "err": "smallint",
    "file": "int",
    "sub": "int",
    "rare": "binary",
}
_COLUMNS: Final = (*_COMMON, "file", "line", "sub", "rare")
FACT_DDL: Final = ", ".join(f"`{name}` {_TYPES.get(name, 'bigint')}" for name in _COLUMNS)
_common_of: Final = attrgetter(*_COMMON)
_rare_of: Final = attrgetter(*_RARE)


class FactColumns:
    """Facts to rows of `FACT_DDL` and back. `files`: all that facts may come from, in order."""

    def __init__(self, files: Sequence[str]) -> None:
        self._files = [*files, None]
        self._numbers: dict[str | None, int | None] = {file: number for number, file in enumerate(files)} | {None: None}

    def row(self, fact: Fact) -> tuple[Any, ...]:
        """A fact as a row."""
        rare = _rare_of(fact)
        place = (self._numbers[fact.file], fact.line, fact.sub)
        return (*_common_of(fact), *place, None if rare == _NOTHING else pickle.dumps(rare))

    def facts(self, batch: pa.RecordBatch) -> Iterator[Fact]:
        """The facts of a batch; further columns than those of `FACT_DDL` are passed over."""
        for row in zip(*column_lists(batch, len(_COLUMNS)), strict=True):
            file, line, sub, rare = row[_FIRST_RARE:]
            more = _NOTHING if rare is None else pickle.loads(rare)
            yield Fact._make((*row[:_FIRST_RARE], *more, self._files[-1 if file is None else file], line, sub))
