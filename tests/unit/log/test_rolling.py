"""When a log starts a new segment, and which of its oldest go, row by row."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from broker_sim.log.config import LogConfig
from broker_sim.log.rolling import count_deletable, must_roll
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
    ("counted from the first one on", {"base_offset": 1 << 40}, {}, ((1 << 40) + (1 << 31) - 1, 1_000), 1_000, None),
    ("one more there", {"base_offset": 1 << 40}, {}, ((1 << 40) + (1 << 31), 1_000), 1_000, "offset"),
    ("of a time of 0", {"first_timestamp": 0}, {}, (10, 500), 9_000, None),
    ("older than that", {"first_timestamp": 0}, {}, (10, 501), 1_000, "time"),
]  # fmt: skip


@pytest.mark.parametrize(("_", "segment", "changes", "batch", "now_ms", "why"), ROWS, ids=[row[0] for row in ROWS])
def test_a_batch_goes_to_a_new_segment(_: Any, segment: Any, changes: Any, batch: Any, now_ms: Any, why: Any) -> None:
    active = {"base_offset": 0, "size": 100, "first_timestamp": 1_000, "created_ms": 900, "jitter_ms": 0}
    active |= {"indexes_are_full": False, **segment}
    offset, timestamp = batch
    found = parse_header(build_batch([Record(offset, timestamp, None, b"v")]))
    header = found._replace(size=70)
    assert must_roll(SimpleNamespace(**active), header, replace(CONFIG, **changes), now_ms=now_ms) == why


#: three segments: from 0, 10 and 20 on, of 100 bytes each, newest records of 1,000, 2,000 and 3,000; they end at 30
#: what, settings, high watermark, log start, bytes of the last one, the broker's time -> how many go
DELETED = [
    ("none by default", {}, 30, 0, 100, 10**9, 0),
    ("as old as it may get", {"retention_ms": 500}, 30, 0, 100, 1_500, 0),
    ("older", {"retention_ms": 500}, 30, 0, 100, 1_501, 1),
    ("the second too", {"retention_ms": 500}, 30, 0, 100, 2_501, 2),
    ("the last too", {"retention_ms": 500}, 30, 0, 100, 3_501, 3),
    ("not an empty one", {"retention_ms": 500}, 20, 0, 0, 3_501, 2),
    ("nothing is kept for long", {"retention_ms": 0}, 30, 0, 100, 2_001, 2),
    ("below the high watermark", {"retention_ms": 500}, 10, 0, 100, 3_501, 1),
    ("not beside it", {"retention_ms": 500}, 9, 0, 100, 3_501, 0),
    ("the last below it", {"retention_ms": 500}, 29, 0, 100, 3_501, 2),
    ("all fit", {"retention_bytes": 300}, 30, 0, 100, 0, 0),
    ("a byte too many", {"retention_bytes": 299}, 30, 0, 100, 0, 0),
    ("a segment too many", {"retention_bytes": 200}, 30, 0, 100, 0, 1),
    ("nearly two", {"retention_bytes": 101}, 30, 0, 100, 0, 1),
    ("two", {"retention_bytes": 100}, 30, 0, 100, 0, 2),
    ("the last stays", {"retention_bytes": 1}, 30, 0, 100, 0, 2),
    ("but where nothing is to be kept", {"retention_bytes": 0}, 30, 0, 100, 0, 3),
    ("and is committed", {"retention_bytes": 0}, 29, 0, 100, 0, 2),
    ("and is there", {"retention_bytes": 0}, 30, 0, 0, 0, 2),
    ("the first by age, no other by size then", {"retention_bytes": 290, "retention_ms": 500}, 30, 0, 100, 1_501, 1),
    ("below the start", {}, 30, 10, 100, 0, 1),
    ("not within", {}, 30, 19, 100, 0, 1),
    ("the last one never", {}, 30, 30, 100, 0, 2),
    ("also of a compacted topic", {"cleanup_policy": "compact", "retention_ms": 0}, 30, 20, 100, 10**9, 2),
    ("which has no other reason", {"cleanup_policy": "compact", "retention_bytes": 0}, 30, 0, 100, 9_999, 0),
    ("unless it deletes", {"cleanup_policy": "compact,delete", "retention_ms": 500}, 30, 0, 100, 1_501, 1),
    ("the start first, then age", {"retention_ms": 500}, 30, 10, 100, 2_501, 2),
]  # fmt: skip


@pytest.mark.parametrize(
    ("_", "changes", "hw", "start", "last", "now_ms", "count"), DELETED, ids=[r[0] for r in DELETED]
)
def test_the_oldest_go(_: Any, changes: Any, hw: Any, start: Any, last: Any, now_ms: Any, count: int) -> None:
    sizes = (100, 100, last)
    segments = [
        SimpleNamespace(base_offset=10 * n, size=size, max_timestamp=1_000 * (n + 1)) for n, size in enumerate(sizes)
    ]
    config = replace(LogConfig(), **{"retention_ms": -1, "retention_bytes": -1, **changes})
    found = count_deletable(segments, config, now_ms=now_ms, high_watermark=hw, leo=30, log_start=start)
    assert found == count


#: what, (newest time of the records, when the file was written) of two segments, bytes of each, policy -> how many go
#: after 1,500 ms, where records are kept for 500 ms
OF_FILES = [
    ("records with a time do not ask the file", (2_000, 1), (2_000, 1), (9, 9), "delete", 0),
    ("nor do those of a time of 0", (0, 9_000), (0, 9_000), (9, 9), "delete", 2),
    ("nor do old ones", (1, 9_000), (1, 9_000), (9, 9), "delete", 2),
    ("as old as it may get", (-1, 1_000), (-1, 1_000), (9, 9), "delete", 0),
    ("older", (-1, 999), (-1, 1_000), (9, 9), "delete", 1),
    ("the last too", (-1, 999), (-1, 999), (9, 9), "delete", 2),
    ("a part of a millisecond does not count", (-1, 1_000.9), (-1, 999.9), (9, 9), "delete", 0),
    ("not above what is kept", (-1, 1_001), (-1, 1), (9, 9), "delete", 0),
    ("what compaction has emptied goes before what it holds up", (-1, 999), (999, 9_000), (0, 9), "compact,delete", 2),
    ("and not before its time", (-1, 1_000), (999, 9_000), (0, 9), "compact,delete", 0),
    ("an empty last one stays", (-1, 999), (-1, 1), (9, 0), "delete", 1),
    ("compaction alone keeps all", (-1, 1), (-1, 1), (9, 9), "compact", 0),
]  # fmt: skip


@pytest.mark.parametrize(("_", "first", "last", "sizes", "policy", "count"), OF_FILES, ids=[r[0] for r in OF_FILES])
def test_records_without_a_time_are_as_old_as_their_file(
    _: Any, first: Any, last: Any, sizes: Any, policy: str, count: int
) -> None:
    """Source: Kafka 3.9 `LogSegment.largestTimestamp`."""
    segments = [
        SimpleNamespace(base_offset=n, size=size, max_timestamp=newest, last_modified_s=lambda at=at: at / 1000)
        for n, (size, (newest, at)) in enumerate(zip(sizes, (first, last), strict=True))
    ]
    config = replace(LogConfig(), retention_ms=500, cleanup_policy=policy)
    assert count_deletable(segments, config, now_ms=1_500, high_watermark=2, leo=2, log_start=0) == count
