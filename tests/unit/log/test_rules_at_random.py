"""Rules of a log against plain ones, on small numbers, so that every bound is met: epochs, rolling, compaction."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from broker_sim.log.cleaner_plan import CleaningPlan, group_segments, plan_cleaning
from broker_sim.log.compaction import OffsetMap, Retention, compacted
from broker_sim.log.config import LogConfig
from broker_sim.log.leader_epochs import LeaderEpochs
from broker_sim.log.replicated import whole_batches
from broker_sim.log.rolling import count_deletable, must_roll
from controller.wire.records import (
    CorruptBatch,
    Record,
    build_batch,
    empty_batch,
    parse_header,
    place,
    rebuilt_batch,
    records_of,
)

# -- leader epochs ----------------------------------------------------------------------------------------------------

Entries = list[tuple[int, int]]


def some_entries(chance: random.Random) -> Entries:
    size = chance.randint(0, 4)
    return list(zip(sorted(chance.sample(range(6), size)), sorted(chance.sample(range(8), size)), strict=True))


def collapsed(entries: Entries, offset: int) -> Entries:
    below = [epoch for epoch, start in entries if start <= offset]
    return [(below[-1], offset), *((e, o) for e, o in entries if o > offset)] if below else entries


def end_of(entries: Entries, epoch: int, leo: int) -> tuple[int, int]:
    if not entries or epoch == -1 or epoch > entries[-1][0]:
        return -1, -1
    if epoch == entries[-1][0]:
        return epoch, leo
    below, above = [e for e, _ in entries if e <= epoch], [o for e, o in entries if e > epoch]
    return (below[-1] if below else epoch), above[0]


@pytest.mark.parametrize("seed", range(4))
def test_leader_epochs(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(500):
        entries, epoch, offset = some_entries(chance), chance.randint(-1, 7), chance.randint(0, 9)
        epochs = LeaderEpochs(list(entries))
        assert epochs.latest == max((e for e, _ in entries), default=-1)
        assert epochs.end_offset_for(epoch, leo=9) == end_of(entries, epoch, 9)
        assert epochs.epoch_for(offset) == max((e for e, o in entries if o <= offset), default=-1)
        is_known = bool(entries) and entries[-1][0] == epoch and entries[-1][1] <= offset
        changes = epoch >= 0 and not is_known
        assert epochs.assign(epoch, offset) is changes
        below = [(e, o) for e, o in entries if e < epoch and o < offset]
        assert epochs.entries == ([*below, (epoch, offset)] if changes else entries)
        for cut in (LeaderEpochs.truncate_from_end, LeaderEpochs.truncate_from_start):
            epochs = LeaderEpochs(list(entries))
            is_end = cut is LeaderEpochs.truncate_from_end
            left = [(e, o) for e, o in entries if o < offset] if is_end else collapsed(entries, offset)
            assert cut(epochs, offset) is (left != entries)
            assert epochs.entries == left
        epochs, last = LeaderEpochs(list(entries)), offset + chance.randint(0, 3)
        epochs.found(max(epoch, 0), offset, last)
        own = [(e, o) for e, o in entries if e == max(epoch, 0) and o <= offset] or [(max(epoch, 0), offset)]
        kept = [(e, o) for e, o in entries if (e < max(epoch, 0) and o < offset) or (e > max(epoch, 0) and o > last)]
        assert epochs.entries == sorted(own + kept)


# -- rolling and retention --------------------------------------------------------------------------------------------


def segments_of(chance: random.Random, size: int) -> list[Any]:
    """Neighbours; of small sizes and times, each beginning one to three offsets after the one before."""
    found, base = [], chance.randint(0, 2)
    for _ in range(size):
        newest = chance.randint(-1, 6)
        found.append(
            SimpleNamespace(
                base_offset=base, size=chance.choice([0, 1, 2, 3]), max_timestamp=newest,
                first_timestamp=min(newest, chance.randint(-1, 6)),
                index_bytes=(chance.randint(0, 3), chance.randint(0, 3)),
                last_modified_s=partial(float, chance.randint(0, 9) / 1000),
            )
        )  # fmt: skip
        base += chance.randint(1, 3)
    return found


def newest_of(segment: Any) -> int:
    return round(segment.last_modified_s() * 1000) if segment.max_timestamp == -1 else int(segment.max_timestamp)


@pytest.mark.parametrize("seed", range(3))
def test_retention(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(600):
        segments = segments_of(chance, chance.randint(1, 4))
        end = segments[-1].base_offset + (chance.randint(1, 3) if segments[-1].size else 0)
        watermark, start, now_ms = chance.randint(0, end), chance.randint(0, end), chance.randint(0, 9)
        config = LogConfig(
            retention_ms=chance.choice([-1, 0, 1, 3]), retention_bytes=chance.choice([-1, 0, 1, 2, 3, 5, 6]),
            cleanup_policy=chance.choice(["delete", "compact", "compact,delete"]),
        )  # fmt: skip
        gone, left = 0, sum(s.size for s in segments)
        for number, segment in enumerate(segments):
            is_last = segment is segments[-1]
            next_base = end if is_last else segments[number + 1].base_offset
            age = now_ms - newest_of(segment)
            is_old = config.retention_ms != -1 and age > config.retention_ms
            is_much = config.retention_bytes != -1 and left - segment.size >= config.retention_bytes
            by_policy = "delete" in config.cleanup_policy and (is_old or is_much)
            if (
                next_base > watermark
                or (is_last and not segment.size)
                or not (by_policy or (next_base <= start and not is_last))
            ):
                break
            gone, left = gone + 1, left - segment.size
        found = count_deletable(
            segments, config, now_ms=now_ms, high_watermark=watermark, leo=end, log_start=start
        )  # fmt: skip
        assert found == gone, (segments, config, watermark, start, now_ms, end)


def test_rolling() -> None:
    chance = random.Random(1)
    header = parse_header(build_batch([Record(0, 0, None, b"v")]))
    for _ in range(1_500):
        active = SimpleNamespace(
            base_offset=chance.randint(0, 2), size=chance.choice([0, 1, 5]), first_timestamp=chance.randint(-1, 4),
            created_ms=chance.randint(0, 3), jitter_ms=chance.randint(0, 2), indexes_are_full=chance.random() < 0.2,
        )  # fmt: skip
        batch = header._replace(
            base_offset=chance.choice([5, (1 << 31) - 1]), last_offset_delta=chance.randint(0, 3),
            size=chance.choice([4, 5, 6]), max_timestamp=chance.randint(-1, 9),
        )  # fmt: skip
        config = LogConfig(segment_bytes=10, segment_ms=chance.randint(1, 6))
        now_ms, why = chance.randint(0, 9), None
        age = batch.max_timestamp - active.first_timestamp
        if active.first_timestamp == -1:
            age = now_ms - active.created_ms if active.created_ms > 0 else 0
        if batch.base_offset + batch.last_offset_delta > active.base_offset + (1 << 31) - 1:
            why = "offset"
        elif active.size:
            if active.size + batch.size > 10:
                why = "size"
            elif age + active.jitter_ms > config.segment_ms:
                why = "time"
            elif active.indexes_are_full:
                why = "index"
        assert must_roll(active, batch, config, now_ms=now_ms) == why


# -- what is compacted ------------------------------------------------------------------------------------------------


def from_the_one_with(segments: Sequence[Any], offset: int) -> list[Any]:
    """Without the last."""
    return [s for n, s in enumerate(segments[:-1]) if segments[n + 1].base_offset > offset]


@pytest.mark.parametrize("seed", range(3))
def test_how_far_and_whether_a_log_is_compacted(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(700):
        segments = segments_of(chance, chance.randint(1, 5))
        end = segments[-1].base_offset + chance.randint(0, 3)
        start = chance.randint(segments[0].base_offset, end)
        checkpoint, watermark = chance.choice([None, chance.randint(0, end + 2)]), chance.randint(0, end)
        config = LogConfig(
            min_compaction_lag_ms=chance.choice([0, 0, 1, 3]), max_compaction_lag_ms=chance.choice([1, 3, 5, 99]),
            min_cleanable_dirty_ratio=chance.choice([0.0, 0.25, 0.5, 1.0]),
        )  # fmt: skip
        now_ms = chance.randint(0, 9)
        first = start if checkpoint is None or checkpoint < start or checkpoint > end else checkpoint
        dirty = from_the_one_with(segments, first)
        lag_ms = config.min_compaction_lag_ms or -99
        young = [s.base_offset for s in dirty if now_ms - newest_of(s) < lag_ms]
        last = max(first, min([watermark, segments[-1].base_offset, *young]))
        beyond = from_the_one_with(segments, last)
        bound = (beyond[0] if beyond else segments[-1]).base_offset
        to_clean = [s.size for s in from_the_one_with(segments, min(first, bound)) if s.base_offset < bound]
        times = [s.first_timestamp for s in dirty if s.first_timestamp > 0]
        plan = plan_cleaning(
            segments,
            config,
            cleaned_up_to=checkpoint,
            log_start=start,
            leo=end,
            high_watermark=watermark,
            now_ms=now_ms,
        )
        clean = sum(s.size for s in segments if s.base_offset < first)
        assert plan == CleaningPlan(
            first_dirty=first, first_uncleanable=bound, clean_bytes=clean, cleanable_bytes=sum(to_clean),
            is_overdue=bool(times) and now_ms - min(times) > config.max_compaction_lag_ms,
        )  # fmt: skip
        total = clean + sum(to_clean)
        assert plan.dirty_ratio == (sum(to_clean) / total if total else 0.0)
        is_dirty = total > 0 and sum(to_clean) / total > config.min_cleanable_dirty_ratio
        assert plan.is_due(config) is (sum(to_clean) > 0 and (plan.is_overdue or is_dirty))


@pytest.mark.parametrize("seed", range(2))
def test_which_neighbours_become_one(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(600):
        segments = segments_of(chance, chance.randint(1, 5))
        for segment in segments[chance.randint(0, 4) :]:
            segment.base_offset += chance.choice([0, (1 << 31) - 4, (1 << 31) - 3, (1 << 31) - 2])
        end = segments[-1].base_offset + chance.randint(1, 3)
        most, most_index = chance.randint(1, 6), chance.randint(1, 5)
        expected: list[list[Any]] = []
        for number, segment in enumerate(segments):
            last = (segments[number + 1].base_offset if number + 1 < len(segments) else end) - 1
            group = [*expected[-1], segment] if expected else []
            if (
                group
                and sum(s.size for s in group) <= most
                and all(sum(s.index_bytes[kind] for s in group) <= most_index for kind in (0, 1))
                and (not segment.size or last < group[0].base_offset + (1 << 31))
            ):
                expected[-1] = group
            else:
                expected.append([segment])
        assert group_segments(segments, max_bytes=most, max_index_bytes=most_index, end=end) == expected


@pytest.mark.parametrize("seed", range(3))
def test_which_records_of_a_batch_stay(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(200):
        found = [
            Record(10 + n, 50 + n, chance.choice([None, b"a", b"b"]), chance.choice([None, b"v"]))
            for n in range(chance.randint(1, 4))
        ]
        batch = build_batch(found, producer_id=chance.choice([-1, 0, 7]), producer_epoch=0, base_sequence=3)
        now_ms, waits = 100, chance.randint(1, 3)
        if is_second := chance.random() < 0.5:
            horizon = chance.choice([99, 100, 101])
            batch = rebuilt_batch(parse_header(batch), found, delete_horizon_ms=horizon)
        header, newest = parse_header(batch), OffsetMap(9)
        newest.put(b"a", chance.randint(9, 14))
        newest.latest_offset = chance.randint(9, 14)
        last = {header.producer_id: header.last_offset + chance.randint(-1, 1)} if chance.random() < 0.8 else {}
        retention = Retention(newest=newest, now_ms=now_ms, delete_retention_ms=waits, last_offsets=last)

        def stays(record: Record, newest: OffsetMap = newest, header: Any = header, now_ms: int = now_ms) -> bool:
            if record.offset > newest.latest_offset:
                return True
            if record.key is None or record.offset < newest.newest(record.key):
                return False
            return record.value is not None or header.delete_horizon_ms is None or now_ms < header.delete_horizon_ms

        kept = [record for record in found if stays(record)]
        result = compacted(batch, header, retention)
        if not kept:
            is_last = header.producer_id >= 0 and last.get(header.producer_id) == header.last_offset
            assert result == (empty_batch(header) if is_last else None)
            continue
        expected = header.delete_horizon_ms
        if not is_second and any(record.value is None for record in kept):
            expected = now_ms + waits
        assert result is not None and parse_header(result).delete_horizon_ms == expected
        assert records_of(result) == kept
        assert (result is batch) is (kept == found and expected == header.delete_horizon_ms)
        control = header._replace(attributes=header.attributes | 0x20)
        assert compacted(batch, control, retention) is batch


def test_a_map_of_keys() -> None:
    for room in range(4):
        offsets = OffsetMap(room)
        taken: dict[bytes, int] = {}
        for offset, key in enumerate((b"a", b"b", b"a", b"c", b"", b"d", b"b")):
            fits = key in taken or len(taken) < room
            assert offsets.put(key, offset) is fits
            taken |= {key: offset} if fits else {}
            assert (len(offsets), offsets.latest_offset) == (len(taken), -1)
        assert [offsets.newest(key) for key in (b"a", b"b", b"c", b"", b"x")] == [
            taken.get(key, -1) for key in (b"a", b"b", b"c", b"", b"x")
        ]
    batch = build_batch([Record(n, 1, key, b"v") for n, key in enumerate((b"a", None, b"b", b"a"))])
    header = parse_header(batch)
    for start, known in ((0, (3, 2)), (2, (3, 2)), (3, (3, -1)), (4, (-1, -1))):
        offsets = OffsetMap(9)
        assert offsets.put_batch(batch, header, start)
        assert (offsets.newest(b"a"), offsets.newest(b"b"), offsets.latest_offset) == (*known, 3)
    offsets.latest_offset = 8
    assert offsets.put_batch(batch, header._replace(attributes=0x20), 0)
    assert (len(offsets), offsets.latest_offset) == (0, 8)


# -- what a follower takes --------------------------------------------------------------------------------------------


def test_whole_batches_of_an_answer() -> None:
    sent = [
        place(build_batch([Record(0, 1, None, b"x" * n)]), base_offset=n, partition_leader_epoch=0) for n in range(3)
    ]
    data, ends = b"".join(sent), [sum(map(len, sent[:n])) for n in range(4)]
    for size in range(len(data) + 1):
        whole = [n for n in range(3) if ends[n + 1] <= size]
        assert whole_batches(data[:size]) == [(parse_header(sent[n]), sent[n]) for n in whole]
    for n in range(3):
        damaged = bytearray(data)
        damaged[ends[n + 1] - 1] ^= 1
        with pytest.raises(CorruptBatch):
            whole_batches(bytes(damaged))
        assert len(whole_batches(bytes(damaged)[: ends[n + 1] - 1])) == n
    assert whole_batches(b"") == []


def test_a_topic_that_is_never_compacted_for_its_age() -> None:
    """A plan holds for any later time; the time of a batch of a segment counts from 1 on."""
    segments: Any = [SimpleNamespace(base_offset=n, size=1, max_timestamp=n, first_timestamp=n) for n in range(3)]
    how = {"cleaned_up_to": None, "log_start": 0, "leo": 3, "high_watermark": 3}
    config = replace(LogConfig(), max_compaction_lag_ms=10)
    assert [plan_cleaning(segments, config, now_ms=now, **how).is_overdue for now in (10, 11, 12)] == [
        False,
        False,
        True,
    ]
