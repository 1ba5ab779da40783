"""What a compaction knows of the keys in the dirty part of a log: the newest offset of each, of so many keys."""

from __future__ import annotations

import pytest

from broker_sim.log.compaction import OffsetMap, Retention, compacted
from controller.wire.records import Record, build_batch, parse_header


def test_a_full_map_takes_newer_offsets_of_its_keys_and_no_other_key() -> None:
    offsets = OffsetMap(2)
    assert offsets.put(b"a", 1) and offsets.put(b"b", 2) and offsets.put(b"a", 3)
    assert not offsets.put(b"c", 4)
    assert offsets.put(b"b", 5)
    assert (len(offsets), [offsets.newest(key) for key in (b"a", b"b", b"c")]) == (2, [3, 5, -1])


@pytest.mark.parametrize("start", [0, 5, 6, 7, 8, 9])
def test_of_a_batch_only_keys_from_the_start_of_the_dirty_part_on_take_room(start: int) -> None:
    keys = (b"a", b"b", None, b"a")
    batch = build_batch([Record(5 + n, 1, key, b"1") for n, key in enumerate(keys)])
    offsets = OffsetMap(len({key for n, key in enumerate(keys) if key is not None and 5 + n >= start}))
    assert offsets.put_batch(batch, parse_header(batch), start)
    assert offsets.latest_offset == 8
    assert [offsets.newest(key) for key in (b"a", b"b")] == [8 if start <= 8 else -1, 6 if start <= 6 else -1]


def test_a_marker_stays_and_takes_no_room_in_the_map() -> None:
    """Whatever its key: that of a marker is not of the topic's."""
    data = bytearray(build_batch([Record(5, 1, b"a", b"1")]))
    data[22] |= 0x20
    marker, offsets = bytes(data), OffsetMap(1)
    header = parse_header(marker)
    assert header.is_control
    assert offsets.put(b"a", 1) and offsets.put_batch(marker, header, 0)
    assert (offsets.newest(b"a"), offsets.latest_offset) == (1, 5)
    offsets.put(b"a", 9)
    offsets.latest_offset = 9
    assert compacted(marker, header, Retention(newest=offsets, now_ms=0, delete_retention_ms=0)) == marker
