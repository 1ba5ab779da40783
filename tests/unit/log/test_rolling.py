"""When a log starts a new segment, row by row."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from broker_sim.log.config import LogConfig
from broker_sim.log.rolling import must_roll
from controller.wire.records import Record, build_batch, parse_header

CONFIG = LogConfig(segment_bytes=1_000, segment_ms=500)
COMPACTED = {"cleanup_policy": "compact", "max_compaction_lag_ms": 20}
ROWS = [
    # what, of the segment, of the settings, the batch's offset and time, the broker's time -> why
    ("it fits", {}, {}, (10, 1_000), 1_000, None),
    ("an empty segment takes any size", {"size": 0}, {"segment_bytes": 10}, (10, 1_000), 1_000, None),
    ("the last bytes", {"size": 930}, {}, (10, 1_000), 1_000, None),
    ("one byte too many", {"size": 931}, {}, (10, 1_000), 1_000, "size"),
    ("as old as it may get, by the records", {}, {}, (10, 1_500), 9_000, None),
    ("older", {}, {}, (10, 1_501), 1_000, "time"),
    ("older, by a part of segment.jitter.ms", {"jitter_ms": 100}, {}, (10, 1_401), 1_000, "time"),
    ("records without a time: by the broker's", {"first_timestamp": -1}, {}, (10, -1), 1_401, "time"),
    ("not yet", {"first_timestamp": -1}, {}, (10, -1), 1_400, None),
    ("a segment of unknown age", {"first_timestamp": -1, "created_ms": 0}, {}, (10, -1), 9_000, None),
    ("a compacted topic, sooner", {}, COMPACTED, (10, 1_021), 0, "time"),
    ("max.compaction.lag.ms of another topic", {}, {"max_compaction_lag_ms": 20}, (10, 1_021), 0, None),
    ("an index is full", {"indexes_are_full": True}, {}, (10, 1_000), 1_000, "index"),
    ("the largest relative offset", {}, {}, ((1 << 31) - 1, 1_000), 1_000, None),
    ("one more", {}, {}, (1 << 31, 1_000), 1_000, "offset"),
    ("also in an empty segment", {"size": 0}, {}, (1 << 31, 1_000), 1_000, "offset"),
]  # fmt: skip


@pytest.mark.parametrize(("_", "segment", "changes", "batch", "now_ms", "why"), ROWS, ids=[row[0] for row in ROWS])
def test_a_batch_goes_to_a_new_segment(_: Any, segment: Any, changes: Any, batch: Any, now_ms: Any, why: Any) -> None:
    active = {"base_offset": 0, "size": 100, "first_timestamp": 1_000, "created_ms": 900, "jitter_ms": 0}
    active |= {"indexes_are_full": False, **segment}
    offset, timestamp = batch
    found = parse_header(build_batch([Record(offset, timestamp, None, b"v")]))
    header = found._replace(size=70)
    assert must_roll(SimpleNamespace(**active), header, replace(CONFIG, **changes), now_ms=now_ms) == why
