"""What a look at the row before tells of a row; batches may be cut anywhere."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from broker_sim.replay.ingest.neighbours import REPEATS, compared
from broker_sim.replay.schema import CLOCK_WENT_BACK

SCHEMA = pa.schema(
    [("topic", pa.string()), ("partition", pa.int32()), ("broker", pa.int32()), ("role", pa.string())]
    + [(name, pa.int64()) for name in ("run", "seq", "ts", "digest")]
)


def row(seq: int | None, ts: int | None, digest: int = 0, **columns: Any) -> dict[str, Any]:
    lane = {"topic": "t", "partition": 0, "broker": 1, "role": "broker", "run": 5}
    return {**lane, "seq": seq, "ts": ts, "digest": digest, **columns}


#: rows in order, with what is told of each
ROWS = [
    (row(None, 10), None, False),
    (row(None, 10), None, False),
    (row(1, 5000), None, False),
    (row(1, 5000), "duplicate", False),
    (row(1, 5000, 9), "contradictory", False),
    (row(1, 5001, 9), "contradictory", False),
    (row(2, 4001), None, False),
    (row(3, 3000), None, True),
    (row(3, None), "contradictory", False),
    (row(4, 0), None, False),
    (row(4, 0, run=6), None, False),
    (row(4, 9000, role="controller"), None, False),
    (row(4, 7000, 1, role="controller"), None, True),
    (row(4, 7000, 1, role="controller"), "duplicate", False),
    (row(4, 7000, 1, role="controller", broker=2), None, False),
    (row(4, 7000, 1, role="broker", partition=1), None, False),
    (row(4, 7000, 1, role="broker", partition=None, topic=None), None, False),
    (row(4, 7000, 1, role="broker", partition=None, topic=None), "duplicate", False),
    (row(4, 7000, 1, role=None), None, False),
    (row(4, 7000, 1, role=None), None, False),
]


@pytest.mark.parametrize("size", [1, 2, 3, 7, len(ROWS)])
def test_what_the_row_before_tells(size: int) -> None:
    batches = pa.Table.from_pylist([given for given, _, _ in ROWS], SCHEMA).to_batches(max_chunksize=size)
    found = pa.Table.from_batches(compared(iter([batches[0].slice(0, 0), *batches])))
    told = zip(found[REPEATS].to_pylist(), found[CLOCK_WENT_BACK].to_pylist(), strict=True)
    assert list(told) == [(repeats, went_back) for _, repeats, went_back in ROWS]
