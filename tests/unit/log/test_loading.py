"""What a start makes of each file of a log: where the log ends, and what becomes of segments that were rewritten."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import Any

import pytest

from broker_sim.log.errors import LogDirsUnusable
from broker_sim.log.log import Log
from broker_sim.log.segment import Segment
from controller.wire import records
from tests.worlds.logs import append, names, new_log, reopened, values

LEFTOVERS = (".cleaned", ".swap", ".deleted", ".tmp")


def filled(folder: Path) -> Log:
    """A log of four segments."""
    folder.mkdir(exist_ok=True)
    log = new_log(folder)
    while len(log.segments) < 4 or log.segments[-1].size < log.segments[0].size:
        append(log, b"%d" % log.leo + b"x" * 60)
    return log


# -- batches that are not intact --------------------------------------------------------------------------------------


def flip(segment: Segment, position: int, size: int) -> None:
    data = bytearray(segment.log_path.read_bytes())
    data[position + size - 1] ^= 1
    segment.log_path.write_bytes(data)


def cut_short(segment: Segment, position: int, size: int) -> None:
    segment.log_path.write_bytes(segment.log_path.read_bytes()[: position + size - 1])


def zeros(segment: Segment, position: int, size: int) -> None:
    data = segment.log_path.read_bytes()
    segment.log_path.write_bytes(data[:position] + bytes(len(data) - position))


@pytest.mark.parametrize("damage", [flip, cut_short, zeros])
def test_a_log_ends_before_the_first_batch_that_is_not_intact(tmp_path: Path, damage: object) -> None:
    assert callable(damage)
    pristine = filled(tmp_path / "pristine")
    whole, sizes = values(pristine), [segment.size for segment in pristine.segments]
    for number, segment in enumerate(pristine.segments):
        for position, header in segment.headers():
            log = filled(tmp_path / f"{header.base_offset}")
            damage(log.segments[number], position, header.size)
            there = log.segments[number].log_path.stat().st_size
            again, repairs = reopened(log)
            assert values(again) == {o: v for o, v in whole.items() if o < header.base_offset}
            assert again.leo == header.base_offset
            lost = [there - position, *sizes[number + 1 :]]
            assert sum(repair.lost_bytes for repair in repairs) == sum(lost)
            logs = [int(name.partition(".")[0]) for name in names(again) if name.endswith(".log")]
            assert logs == [s.base_offset for s in pristine.segments[: number + 1]], "nothing lies around"
            assert append(again) == header.base_offset
            third, repairs = reopened(again)
            assert (third.leo, repairs) == (header.base_offset + 1, [])


@pytest.mark.parametrize("damage", [flip, cut_short, zeros])
@pytest.mark.parametrize("is_clean", [True, False])
def test_a_damaged_segment_costs_no_other_that_was_written_completely(
    tmp_path: Path, damage: Any, is_clean: bool
) -> None:
    """The last batch of the second segment: what follows was closed cleanly, or lies below the recovery point."""
    log = filled(tmp_path)
    whole, segments = values(log), log.segments
    log.close()
    position, header = list(segments[1].headers())[-1]
    damage(segments[1], position, header.size)
    segments[1].index_path.unlink()  # so that the segment is read
    there = segments[1].log_path.stat().st_size
    again, repairs = reopened(log, is_clean=is_clean, recovery_point=segments[3].base_offset)
    assert [repair.lost_bytes for repair in repairs] == [there - position]
    del whole[header.base_offset]
    assert (values(again), again.leo) == (whole, log.leo)
    assert append(again) == log.leo
    read = [records.parse_header(batch).base_offset for batch in again.batches()]
    assert read == [*whole, log.leo], "whoever copies it passes over what is missing"


def older(magic: int, value: bytes) -> bytes:
    """A record of message format 0 or 1."""
    time = struct.pack(">q", 1) if magic else b""
    body = struct.pack(">bb", magic, 0) + time + struct.pack(">ii", -1, len(value)) + value
    return struct.pack(">qiI", 0, 4 + len(body), zlib.crc32(body)) + body


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("before", ["nothing", "batches"])
@pytest.mark.parametrize("number", [0, -1])
def test_records_of_older_formats_are_no_damage(
    tmp_path: Path, magic: int, is_clean: bool, before: str, number: int
) -> None:
    log = filled(tmp_path)
    log.close()
    path, data = log.segments[number].log_path, older(magic, b"v" * 40) * 3
    batches = path.read_bytes() if before == "batches" else b""
    path.write_bytes(batches + data)
    with pytest.raises(LogDirsUnusable, match=f"has records of message format {magic}, .* left as it is"):
        reopened(log, is_clean=is_clean)
    assert path.read_bytes() == batches + data
    path.write_bytes(batches + data[:30] + b"?" + data[31:])  # one that is damaged may be anything
    _, repairs = reopened(log, is_clean=is_clean)
    assert (path.stat().st_size, repairs[0].lost_bytes) == (len(batches), len(data))


def test_records_of_older_formats_go_with_no_segment_before_them(tmp_path: Path) -> None:
    """What is behind a segment that is cut off is removed, but what cannot be read here may be whole."""
    log = filled(tmp_path)
    position, header = list(log.segments[0].headers())[-1]
    flip(log.segments[0], position, header.size)
    path = log.segments[1].log_path
    path.write_bytes(older(1, b"v"))
    with pytest.raises(LogDirsUnusable, match="has records of message format 1"):
        reopened(log, is_clean=False)
    assert path.read_bytes() == older(1, b"v")


def test_of_a_segment_that_begins_within_another_the_first_counts(tmp_path: Path) -> None:
    log = filled(tmp_path)
    whole, (first, second) = values(log), log.segments[:2]
    inside = second.base_offset - 1
    (log.folder / f"{inside:020d}.log").write_bytes(second.log_path.read_bytes())
    again, repairs = reopened(log)
    assert (values(again), again.leo) == (whole, log.leo)
    assert [(repair.path.name, repair.lost_bytes) for repair in repairs] == [(f"{inside:020d}.log", second.size)]
    assert reopened(again)[1] == []
    assert first.log_path.exists()


# -- rewritten segments -----------------------------------------------------------------------------------------------


def rewrite(log: Log, numbers: list[int], suffix: str) -> Segment:
    """As compaction leaves it: of these segments only the last batch is kept, in one that begins with the first."""
    made = log.new_cleaned_segment(log.segments[numbers[0]].base_offset, suffix)
    last = log.segments[numbers[-1]]
    position, header = list(last.headers())[-1]
    made.append(last.read(position, header.size), header)
    made.seal()
    return made


@pytest.mark.parametrize("numbers", [[0], [0, 1], [1, 2], [2], [0, 1, 2]])
def test_a_swap_takes_along_the_snapshots_within_what_it_replaces(tmp_path: Path, numbers: list[int]) -> None:
    """The one where it begins stays: the producers as they were there. Both lookups know the new segment."""
    log = filled(tmp_path)
    bases, whole = [segment.base_offset for segment in log.segments], values(log)
    last = log.segments[numbers[-1]].next_offset - 1
    log.swap_in(rewrite(log, numbers, ".cleaned"), [log.segments[number] for number in numbers])
    left = [base for number, base in enumerate(bases) if number not in numbers[1:]]
    assert [segment.base_offset for segment in log.segments] == left
    logs, snapshots = ([int(n[:20]) for n in names(log) if n.endswith(kind)] for kind in (".log", ".snapshot"))
    assert (logs, snapshots) == (left, left[1:])
    dropped = {offset for n in numbers for offset in range(bases[n], [*bases, log.leo][n + 1])} - {last}
    assert values(log) == {offset: value for offset, value in whole.items() if offset not in dropped}
    log.truncate(bases[3])
    assert reopened(log)[0].leo == bases[3]


#: what, the segments that were rewritten and under which suffix, files without a log -> segments of which the rewritten
#: one counts
REWRITTEN: list[tuple[str, list[tuple[list[int], str]], list[str], list[int]]] = [
    ("not all was written", [([0, 1], ".cleaned")], [], []),
    ("a swap that has begun is completed", [([0, 1], ".swap")], [], [0, 1]),
    ("in the middle, too", [([1, 2], ".swap")], [], [1, 2]),
    ("two swaps", [([0], ".swap"), ([1, 2], ".swap")], [], [0, 1, 2]),
    ("a swap before what is not written yet", [([0], ".swap"), ([1, 2], ".cleaned")], [], [0]),
    ("one after it is undone", [([0], ".cleaned"), ([1, 2], ".swap")], [], []),
    ("so is one of the same", [([1], ".cleaned"), ([1], ".swap")], [], []),
    ("and each after the first", [([0], ".swap"), ([1], ".cleaned"), ([2], ".swap")], [], [0]),
    ("which is the first of several", [([0], ".cleaned"), ([1], ".swap"), ([2], ".cleaned")], [], []),
    ("indexes alone are nothing", [], ["{0}.index.swap", "{1}.timeindex.swap"], []),
    ("what was to go goes", [], ["{1}.log.deleted", "{1}.index.deleted", "{0}.snapshot.tmp"], []),
]


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize(("_", "rewritten", "alone", "counts"), REWRITTEN, ids=[row[0] for row in REWRITTEN])
def test_rewritten_segments_count_once_they_are_being_swapped_in(
    tmp_path: Path, _: str, rewritten: list[tuple[list[int], str]], alone: list[str], counts: list[int], is_clean: bool
) -> None:
    log = filled(tmp_path)
    whole, bases = values(log), [f"{segment.base_offset:020d}" for segment in log.segments]
    dropped = {offset for n in counts for offset in range(log.segments[n].base_offset, log.segments[n].next_offset)}
    ends = {log.segments[numbers[-1]].next_offset - 1 for numbers, _suffix in rewritten}
    for numbers, suffix in rewritten:
        rewrite(log, numbers, suffix)
    for name in alone:
        (log.folder / name.format(*bases)).write_bytes(b"no index")
    if is_clean:
        log.close()
    again, repairs = reopened(log, is_clean=is_clean)
    assert values(again) == {o: v for o, v in whole.items() if o not in dropped or o in ends}
    assert (again.leo, sum(repair.lost_bytes for repair in repairs)) == (log.leo, 0)
    assert not [name for name in names(again) if name.endswith(LEFTOVERS)]
    assert [r.reason for r in repairs] == ["an interrupted compaction was completed"] * sum(
        suffix == ".swap" and numbers[0] in counts for numbers, suffix in rewritten
    )
    third, repairs = reopened(again)
    assert (values(third), repairs) == (values(again), [])


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_segment_of_which_nothing_is_left_replaces_the_one_with_its_offset(
    tmp_path: Path, number: int, is_clean: bool
) -> None:
    log = filled(tmp_path)
    old = log.segments[number]
    whole, bases = values(log), [segment.base_offset for segment in log.segments]
    log.new_cleaned_segment(old.base_offset, ".swap").seal()
    if is_clean:
        log.close()
    again, repairs = reopened(log, is_clean=is_clean)
    assert values(again) == {o: v for o, v in whole.items() if not old.base_offset <= o < old.next_offset}
    assert ([segment.base_offset for segment in again.segments], again.leo) == (bases, log.leo)
    assert [repair.lost_bytes for repair in repairs] == [0]
    assert not [name for name in names(again) if name.endswith(LEFTOVERS)]


@pytest.mark.parametrize("name", ["notes.log.swap", "1.log.swap", "notes.index.swap"])
def test_a_swap_that_is_no_segments_replaces_nothing(tmp_path: Path, name: str) -> None:
    log = filled(tmp_path)
    (log.folder / name).write_bytes(b"")
    again, repairs = reopened(log)
    assert (values(again), again.leo, repairs) == (values(log), log.leo, [])
