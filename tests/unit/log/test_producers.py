"""Idempotent producers: which batches are new, which are there already, which are refused, and what is forgotten.

Source: spec clients.md §3.1; Kafka 3.9 `ProducerAppendInfo`, `ProducerStateEntry`.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_sim.log import snapshots
from broker_sim.log.files import Files
from broker_sim.log.producers import Producer, ProducerStates
from controller.wire.errors import ErrorCode, KafkaError
from controller.wire.records import BatchHeader, Record, build_batch, parse_header, place

WRAP = 1 << 31
OUT_OF_ORDER, FENCED = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.INVALID_PRODUCER_EPOCH


def header(base: int, count: int, sequence: int, *, producer: int = 7, epoch: int = 0, at: int = 1) -> BatchHeader:
    records = [Record(n, at, None, b"v") for n in range(count)]
    batch = build_batch(records, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)
    return parse_header(place(batch, base_offset=base, partition_leader_epoch=0))


class Model:
    """One producer in plain numbers: its epoch and (first sequence, last sequence, base offset) of each batch."""

    def __init__(self) -> None:
        self.epoch: int | None = None
        self.batches: list[tuple[int, int, int]] = []

    def answer(self, epoch: int, first: int, last: int) -> int | ErrorCode | None:
        if self.epoch is None:
            return None
        if epoch < self.epoch:
            return FENCED
        out_of_order = OUT_OF_ORDER if self.epoch >= 0 else None  # without an epoch any sequence is taken
        if epoch > self.epoch:
            return None if first == 0 else out_of_order
        for known_first, known_last, base in self.batches[-5:]:
            if (known_first, known_last) == (first, last):
                return base
        return None if first == (self.batches[-1][1] + 1) % WRAP else out_of_order

    def take(self, epoch: int, batch: tuple[int, int, int]) -> None:
        self.batches = [*(self.batches if epoch == self.epoch else []), batch]
        self.epoch = epoch


#: who, how its epoch differs, which sequence (the next; so many batches back; the next but one; zero), how many
BATCHES = st.lists(
    st.tuples(
        st.sampled_from([0, 8]),
        st.sampled_from([0, 0, 0, 0, -1, 1]),
        st.sampled_from(["next", "next", "next", 1, 2, 4, 5, 6, "gap", "zero"]),
        st.integers(1, 3),
    ),
    max_size=40,
)


@settings(max_examples=150, deadline=None)
@given(BATCHES, st.sampled_from([0, WRAP - 1, WRAP - 2, WRAP - 5, 1000]), st.sampled_from([0, 0, -1]))
def test_a_batch_is_new_known_or_refused(
    sent: list[tuple[int, int, int | str, int]], first: int, first_epoch: int
) -> None:
    states, models, end = ProducerStates(), {0: Model(), 8: Model()}, 0
    for producer, step, which, count in sent:
        model = models[producer]
        epoch = first_epoch if model.epoch is None else model.epoch + step
        if epoch < -1:
            continue
        known = model.batches
        upcoming = (known[-1][1] + 1) % WRAP if known else first
        begin, size = {"next": upcoming, "gap": (upcoming + 1) % WRAP, "zero": 0}.get(str(which), upcoming), count
        if isinstance(which, int) and which <= len(known):
            begin = known[-which][0]
            size = (known[-which][1] - begin) % WRAP + 1
        batch = header(end, size, begin, producer=producer, epoch=epoch)
        expected = model.answer(epoch, begin, (begin + size - 1) % WRAP)
        if isinstance(expected, ErrorCode):
            with pytest.raises(KafkaError) as refused:
                states.duplicate_of(batch)
            assert refused.value.code is expected
            continue
        assert states.duplicate_of(batch) == expected
        if expected is None:
            states.appended(batch)
            model.take(epoch, (begin, (begin + size - 1) % WRAP, end))
            end += size
    assert len(states) == sum(model.epoch is not None for model in models.values())
    assert states.last_offsets() == {
        producer: model.batches[-1][2] + (model.batches[-1][1] - model.batches[-1][0]) % WRAP
        for producer, model in models.items()
        if model.batches
    }
    for producer, state in states:
        kept = [(b.first_sequence, b.last_sequence, b.base_offset) for b in state.batches]
        assert (state.epoch, kept) == (models[producer].epoch, models[producer].batches[-5:])


def test_who_has_no_id_is_never_known() -> None:
    states = ProducerStates()
    control = header(0, 1, -1, producer=-1)._replace(attributes=0x20)
    for batch in (header(0, 1, -1, producer=-1), header(0, 1, 0, producer=-1), control, header(0, 1, -1)):
        states.appended(batch)
        assert states.duplicate_of(batch) is None and len(states) == 0


def marker(epoch: int, *, at: int = 1) -> BatchHeader:
    """The end of a transaction, which carries no sequence."""
    return header(0, 1, -1, epoch=epoch, at=at)._replace(attributes=0x30)


def test_a_marker_fences_the_epochs_before_it() -> None:
    """Source: Kafka 3.9 `ProducerAppendInfo.appendEndTxnMarker`."""
    states = ProducerStates()
    states.appended(header(0, 1, 5, epoch=3))
    states.appended(marker(3, at=9))
    assert states.duplicate_of(header(1, 1, 5, epoch=3)) == 0, "a marker of the same epoch forgets no batch"
    states.appended(marker(4, at=9))
    for epoch, sequence, code in ((3, 6, FENCED), (4, 6, OUT_OF_ORDER), (5, 1, OUT_OF_ORDER)):
        with pytest.raises(KafkaError) as refused:
            states.duplicate_of(header(1, 1, sequence, epoch=epoch))
        assert refused.value.code is code, (epoch, sequence)
    assert states.duplicate_of(header(1, 1, 0, epoch=4)) is None
    assert snapshots.encode(states)[10:] == bytes.fromhex(
        "00000000000000070004ffffffffffffffffffffffff000000000000000000000009ffffffffffffffffffffffff"
    ), "as Kafka says of who has no batch"
    ((producer_id, found),) = snapshots.decode(snapshots.encode(states), Path("x"), oldest_ms=9)
    assert (producer_id, found.epoch, found.last_ms, [*found.batches]) == (7, 4, 9, [])


@pytest.mark.parametrize("epoch", [3, 4])
def test_a_transaction_is_open_until_its_marker_whatever_its_producer_writes(epoch: int) -> None:
    """Source: Kafka 3.9 `ProducerStateEntry.maybeUpdateProducerEpoch`, which forgets the batches alone."""
    states = ProducerStates()
    states.put(7, Producer(epoch=3, last_ms=5, coordinator_epoch=6, current_txn_first_offset=2))
    states.appended(header(4, 1, 0, epoch=epoch))
    ((_, left),) = states
    assert (left.epoch, left.coordinator_epoch, left.current_txn_first_offset) == (epoch, 6, 2)
    states.expire(10)
    assert len(states) == 1, "so it is not forgotten however old it is"
    states.appended(marker(epoch, at=9))
    states.expire(10)
    assert not len(states)


@pytest.mark.parametrize("epoch", [3, 4])
def test_of_a_marker_that_was_compacted_away_nothing_is_taken(epoch: int) -> None:
    """Source: Kafka 3.9 `ProducerAppendInfo.append`."""
    states = ProducerStates()
    states.appended(marker(epoch)._replace(count=0))
    assert len(states) == 0
    states.put(7, Producer(epoch=3, last_ms=5, current_txn_first_offset=2))
    states.appended(marker(epoch, at=9)._replace(count=0))
    ((_, left),) = states
    assert left == Producer(epoch=3, last_ms=5, current_txn_first_offset=2)
    states.appended(marker(epoch, at=9))
    ((_, left),) = states
    assert left == Producer(epoch=epoch, last_ms=9)


@pytest.mark.parametrize("before_ms", [0, 4, 5, 6, 10, 11])
def test_who_wrote_last_before_a_time_is_forgotten(before_ms: int) -> None:
    states = ProducerStates()
    for producer, first, last in ((1, 20, 5), (2, 5, 10), (3, 1, 4)):
        for n, at in enumerate((first, last)):
            states.appended(header(n, 1, n, producer=producer, at=at))
    states.put(4, Producer(epoch=0, last_ms=0, current_txn_first_offset=0))
    states.expire(before_ms)
    kept = [producer for producer, _ in states]
    assert kept == [*(p for p, last in ((1, 5), (2, 10), (3, 4)) if last >= before_ms), 4], "4 has a transaction open"


def test_a_snapshot_is_taken_where_there_is_none_so_late(tmp_path: Path) -> None:
    taken, states = snapshots.Snapshots(tmp_path, Files()), ProducerStates()
    for offset in (0, 5, 5, 3, 9):
        taken.take(offset, states)
    assert taken.offsets == (5, 9)
    assert taken.doom(5, ".x") == [f"{5:020d}.snapshot.x"] and taken.doom(5, ".x") == []
    assert taken.offsets == (9,)
    assert {path.name for path in tmp_path.iterdir()} == {f"{9:020d}.snapshot", f"{5:020d}.snapshot.x"}


PRODUCERS = st.dictionaries(
    st.integers(0, 2**40),
    st.builds(
        Producer,
        epoch=st.integers(0, 2**15 - 1),
        last_ms=st.integers(0, 100),
        coordinator_epoch=st.integers(-1, 9),
        current_txn_first_offset=st.sampled_from([-1, -1, 0, 5]),
    ),
    max_size=4,
)


@given(PRODUCERS, st.integers(0, 100), st.integers(0, 3), st.integers(0, WRAP - 1))
def test_a_snapshot_keeps_the_last_batch_of_who_is_not_too_old(
    producers: dict[int, Producer], oldest_ms: int, count: int, sequence: int
) -> None:
    states = ProducerStates()
    for producer_id, producer in producers.items():
        states.put(producer_id, producer)
        for n in range(count):
            batch = header(
                10 * n, 3, (sequence + 3 * n) % WRAP, producer=producer_id, epoch=producer.epoch, at=producer.last_ms
            )
            states.appended(batch)
    data = snapshots.encode(states)
    kept = dict(iter(snapshots.decode(data, Path("x"), oldest_ms=oldest_ms)))
    assert list(kept) == [
        p for p, each in producers.items() if each.last_ms >= oldest_ms or each.current_txn_first_offset >= 0
    ]
    for producer_id, found in kept.items():
        was = producers[producer_id]
        assert (found.epoch, found.last_ms, found.coordinator_epoch) == (was.epoch, was.last_ms, was.coordinator_epoch)
        assert found.current_txn_first_offset == was.current_txn_first_offset
        assert list(found.batches) == list(was.batches)[-1:]
    for at in range(0, len(data), 7):
        damaged = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        for torn in (damaged, data[:at], data + b"x"):
            with pytest.raises(ValueError, match="x: "):
                snapshots.decode(torn, Path("x"), oldest_ms=0)
