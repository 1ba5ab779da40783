"""Segments and snapshots as they lie on a disk: torn, corrupt, filled with zeros, of a later Kafka."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker_sim.replay.metadata_log import segments
from broker_sim.replay.metadata_log.segments import Found, Problem, found_in, walk
from tests.unit.replay.metadata_log.written import batch, change, elected, partition, snapshot, topic, uvarint

LOG = (
    elected(0, 1000, 2) + batch(1, 1001, topic(1, "a"), partition(1, 0, [1, 2])) + batch(3, 1005, change(1, 0, isr=[1]))
)
ENDS = (len(elected(0, 1000, 2)), len(LOG) - len(batch(3, 1005, change(1, 0, isr=[1]))), len(LOG))


def test_whole_batches_are_one_piece_with_its_offsets_and_times() -> None:
    assert walk(LOG) == segments.Walked((segments.Piece(0, len(LOG), 0, 4, 1000, 1005),), ())


@given(st.lists(st.tuples(st.sampled_from((0, 0, 1, 7)), st.integers(1, 3)), min_size=1, max_size=6))
def test_pieces_have_the_offsets_of_their_batches_and_no_others(batches: list[tuple[int, int]]) -> None:
    """Offsets that a file skips are in no piece, though no byte is missing."""
    data, offset, held = b"", 0, set[int]()
    for skipped, records in batches:
        offset += skipped
        data += batch(offset, 1000 + offset, *(topic(n, f"t{n}") for n in range(records)))
        held |= set(range(offset, offset + records))
        offset += records
    walked = walk(data)
    assert not walked.problems
    told = [n for piece in walked.pieces for n in range(piece.first_offset, piece.next_offset)]
    assert (sorted(held), len(held)) == (told, len(told))


def test_records_have_their_place_and_who_leads_is_one_of_them() -> None:
    found = [one for one in found_in(LOG) if isinstance(one, Found)]
    assert [(f.offset, f.ts, f.epoch, f.record.name) for f in found] == [
        (0, 1000, 1, "LeaderChangeMessage"),
        (1, 1001, 1, "TopicRecord"),
        (2, 1001, 1, "PartitionRecord"),
        (3, 1005, 1, "PartitionChangeRecord"),
    ]
    assert found[0].record.fields["leaderId"] == 2


def test_a_log_that_is_cut_at_any_byte_has_its_whole_batches_and_one_torn_tail() -> None:
    for at in range(1, len(LOG)):
        cut = walk(LOG[:at])
        whole = max((end for end in ENDS if end <= at), default=0)
        assert sum(piece.end - piece.start for piece in cut.pieces) == whole
        assert [p.reason for p in cut.problems] == ([segments.TORN] if at not in ENDS else [])


@given(st.integers(0, len(LOG) - 1), st.integers(1, 255))
def test_a_changed_byte_costs_at_most_its_batch_and_what_cannot_be_found_behind_it(at: int, change_by: int) -> None:
    damaged = bytearray(LOG)
    damaged[at] = (damaged[at] + change_by) % 256
    walked = walk(bytes(damaged))
    for piece in walked.pieces:
        assert all(isinstance(one, Found) for one in found_in(bytes(damaged)[piece.start : piece.end]))
    read = sum(piece.end - piece.start for piece in walked.pieces)
    # baseOffset, length and leader epoch are under no checksum
    assert read < len(LOG) or 0 <= at - max(end for end in (0, *ENDS) if end <= at) < 17


@given(st.binary(max_size=300))
def test_any_bytes_can_be_walked(content: bytes) -> None:
    for data in (content, LOG + content, content + LOG):
        pieces = walk(data).pieces
        assert all(list(found_in(data[piece.start : piece.end])) for piece in pieces)
        assert [(piece.start, piece.end) for piece in pieces] == sorted((piece.start, piece.end) for piece in pieces)


def test_a_batch_with_another_checksum_leaves_a_gap() -> None:
    damaged = bytearray(LOG)
    damaged[ENDS[1] - 1] ^= 1
    walked = walk(bytes(damaged))
    assert [(p.first_offset, p.next_offset) for p in walked.pieces] == [(0, 1), (3, 4)]
    assert [p.reason for p in walked.problems] == [segments.CORRUPT]
    assert walked.problems[0].text.startswith("offsets 1 to 2: ")


def test_zeros_at_the_end_of_a_file_are_no_problem() -> None:
    assert walk(LOG + bytes(4096)) == walk(LOG)


def test_pieces_end_where_offsets_jump_and_where_they_are_long(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    jumped = LOG + batch(9, 1009, change(1, 0, isr=[1, 2]))
    assert [(p.first_offset, p.next_offset) for p in walk(jumped).pieces] == [(0, 4), (9, 10)]
    monkeypatch.setattr(segments, "PIECE_BYTES", 1)
    assert [(p.first_offset, p.next_offset) for p in walk(LOG).pieces] == [(0, 1), (1, 3), (3, 4)]


def test_a_record_of_a_later_kafka_is_told_and_the_others_of_its_batch_are_read() -> None:
    later = uvarint(1) + uvarint(99) + uvarint(0)
    found = list(found_in(batch(5, 1, topic(1, "a"), later, topic(2, "b"))))
    assert [type(one) for one in found] == [Found, Problem, Found]
    assert found[1] == Problem(0, segments.UNKNOWN_RECORD, "record 99 version 0", 6)


def test_a_snapshot_tells_until_when_it_holds_and_whether_it_is_whole() -> None:
    whole, cut = walk(snapshot(7777, partition(1, 0, [1]))), walk(snapshot(7777, partition(1, 0, [1]), is_whole=False))
    assert (whole.contains_until, whole.has_footer) == (7777, True)
    assert (cut.contains_until, cut.has_footer) == (7777, False)
