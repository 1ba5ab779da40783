"""What an append tells, what a broker may write of its own, and what a cut leaves wherever it is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from broker_sim.log.errors import OffsetOutOfRange
from broker_sim.log.log import Appended, UnexpectedOffset
from controller.wire.errors import ErrorCode, KafkaError
from controller.wire.records import Record, build_batch, build_values, place
from tests.worlds.logs import SMALL, append, new_log, reopened, values


def idempotent(sequence: int, count: int = 2) -> bytes:
    records = [Record(n, 1_000, b"k", b"v") for n in range(count)]
    return build_batch(records, producer_id=7, producer_epoch=0, base_sequence=sequence)


def test_an_append_tells_where_it_is_and_a_repeated_one_where_it_was(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    append(log)
    one, two = idempotent(0), idempotent(2, 3)
    told = [log.append_as_leader(batch, leader_epoch=0, now_ms=5) for batch in (one, two, one, two)]
    assert told == [
        Appended(base_offset=1, end_offset=3, leo=3, size_bytes=len(one)),
        Appended(base_offset=3, end_offset=6, leo=6, size_bytes=len(two)),
        Appended(base_offset=1, end_offset=3, leo=6, size_bytes=0, is_duplicate=True),
        Appended(base_offset=3, end_offset=6, leo=6, size_bytes=0, is_duplicate=True),
    ]
    with pytest.raises(KafkaError):
        log.append_as_leader(idempotent(9), leader_epoch=0, now_ms=5)
    assert log.leo == 6 and len(values(log)) == 6


@pytest.mark.parametrize("room", [0, -1])
def test_what_a_broker_writes_of_its_own_has_a_limit_too(tmp_path: Path, room: int) -> None:
    """Source: Kafka 3.9 `UnifiedLog.append`, whatever the origin: the coordinator's batches are no exception."""
    batch = build_values([(b"k", b"v" * 20)], timestamp=1)
    log = new_log(tmp_path, replace(SMALL, max_message_bytes=len(batch) + room, cleanup_policy="compact"))
    if room < 0:
        with pytest.raises(KafkaError) as refused:
            log.append_as_leader(batch, leader_epoch=3, now_ms=1, is_client=False)
        assert (refused.value.code, log.leo) == (ErrorCode.MESSAGE_TOO_LARGE, 0)
    else:
        assert log.append_as_leader(batch, leader_epoch=3, now_ms=1, is_client=False).end_offset == 1
        assert (log.epochs.entries, list(values(log))) == ([(3, 0)], [0])


@pytest.mark.parametrize("offset", [0, 3, 4, 5, 8, 9, 12])
def test_a_cut_below_at_or_above_the_start(tmp_path: Path, offset: int) -> None:
    """Below the start, nothing is left and the log begins there; nobody is known any more, nor any epoch."""
    log = new_log(tmp_path)
    for sequence in range(9):
        append(log, producer=7, sequence=sequence)
    log.assign_epoch(2, 9)
    log.flush()
    log.raise_log_start(4)
    size, version = log.size_bytes, log.version
    removed = log.truncate(offset)
    assert log.epochs.latest == (0 if 4 < offset <= 9 else 2 if offset > 9 else -1)
    if offset >= 9:
        assert (removed, log.leo, log.version, log.recovery_point) == (0, 9, version, 9)
        return
    start = min(4, offset)
    assert (log.log_start_offset, log.leo, log.recovery_point) == (start, offset, offset)
    assert (removed, log.version > version) == (size - log.size_bytes, True)
    assert list(values(log)) == [*range(start, offset)]
    known = dict(iter(log.producers))
    assert ({p: s.batches[-1].last_offset for p, s in known.items()}) == ({7: offset - 1} if offset > 4 else {})
    if offset < 4:
        assert (
            log.size_bytes == 0
            and not list(log.folder.glob("*.snapshot"))
            and [s.base_offset for s in log.segments] == [offset]
        )
    append(log)
    again, repairs = reopened(log, log_start_offset=start, recovery_point=log.recovery_point)
    assert (again.log_start_offset, again.leo, values(again)) == (start, offset + 1, values(log)) and not repairs
    with pytest.raises(OffsetOutOfRange):
        again.read(start - 1, max_bytes=1, bound=99)


def test_a_log_that_is_emptied_begins_anew_and_knows_nobody(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    for sequence in range(9):
        append(log, producer=7, sequence=sequence)
    log.flush()
    assert log.epochs.entries == [(0, 0)] and list(log.folder.glob("*.snapshot"))
    version = log.version
    log.truncate_fully(50)
    assert log.version > version and log.epochs.entries == [] and len(log.producers) == 0
    assert not list(log.folder.glob("*.snapshot"))
    assert (log.log_start_offset, log.leo, log.recovery_point, log.size_bytes) == (50, 50, 9, 0)
    assert log.append_as_leader(idempotent(5), leader_epoch=3, now_ms=1).base_offset == 50, (
        "a producer like any new one"
    )
    again, _ = reopened(log, log_start_offset=50)
    assert (again.leo, again.log_start_offset, again.epochs.entries) == (52, 50, [(3, 50)])


@pytest.mark.parametrize("held", [0, 1, 3])
@pytest.mark.parametrize("start", [0, 5])
def test_an_answer_without_a_whole_batch_changes_nothing(tmp_path: Path, held: int, start: int) -> None:
    """Most answers bring a follower nothing, and the first of an empty topic too."""
    log = new_log(tmp_path)
    log.truncate_fully(start)
    for _ in range(held):
        append(log)
    before = (log.log_start_offset, log.leo, log.version, log.epochs.entries, log.size_bytes)
    torn = place(idempotent(0), base_offset=log.leo, partition_leader_epoch=1)[:-1]
    for data in (b"", b"torn", torn):
        assert log.append_as_follower(data, now_ms=1) == 0
        assert (log.log_start_offset, log.leo, log.version, log.epochs.entries, log.size_bytes) == before


@pytest.mark.parametrize("start", [5, 6, 7, 9])
def test_a_follower_takes_several_batches_of_which_the_first_begins_before_its_start(
    tmp_path: Path, start: int
) -> None:
    log = new_log(tmp_path)
    log.truncate_fully(start)
    batches = [place(idempotent(2 * n), base_offset=at, partition_leader_epoch=1) for n, at in enumerate((4, 6, 8))]
    assert log.append_as_follower(b"".join(batches) + b"torn", now_ms=1) == sum(map(len, batches))
    assert (log.log_start_offset, log.leo, log.epochs.entries) == (4, 10, [(1, 4)])
    with pytest.raises(UnexpectedOffset):
        log.append_as_follower(batches[0], now_ms=1)
    gap = place(idempotent(6), base_offset=20, partition_leader_epoch=1)
    assert log.append_as_follower(gap, now_ms=1) == len(gap) and log.leo == 22, "what was compacted leaves gaps"
