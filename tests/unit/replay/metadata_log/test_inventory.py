"""What of a log is there: copies, gaps, snapshots that help, logs of other clusters, transactions that do not count."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from broker_sim.replay.errors import ReplayRefused
from broker_sim.replay.metadata_log import local
from broker_sim.replay.metadata_log.files import FOLDER, MetadataFile, metadata_files
from broker_sim.replay.metadata_log.fold import Gap
from broker_sim.replay.metadata_log.inventory import inventory, one_cluster
from broker_sim.replay.metadata_log.segments import Piece, Problem, Walked
from broker_sim.replay.metadata_log.transactions import left_out
from tests.unit.replay.metadata_log.written import batch, change, elected, partition, topic

BEGIN, END, ABORT = 23, 24, 25


def a_segment(name: str, *spans: tuple[int, int]) -> tuple[MetadataFile, Walked]:
    file = MetadataFile(path=Path(f"/{name}/{spans[0][0]:020}.log"), size=1, offset=spans[0][0])
    return file, Walked(tuple(Piece(0, 1, a, b, a * 10, (b - 1) * 10) for a, b in spans), ())


def a_snapshot(offset: int, *, epoch: int = 1, is_whole: bool = True) -> tuple[MetadataFile, Walked]:
    path = Path(f"/s/{offset:020}-{epoch:010}.checkpoint")
    return MetadataFile(path=path, size=1, offset=offset, epoch=epoch), Walked((), (), offset * 10 - 5, is_whole)


CASES = [  # what, files, spans, gaps, snapshots that are used
    ("one segment from the beginning", [a_segment("a", (0, 9))], [(0, 9)], [], []),
    ("copies and overlaps count once", [a_segment("a", (0, 9)), a_segment("b", (0, 5)), a_segment("b", (4, 12))],
     [(0, 12)], [], []),
    ("a lost segment is a gap", [a_segment("a", (0, 9)), a_segment("a", (20, 30))], [(0, 9), (20, 30)],
     [Gap(9, 20, 80)], []),
    ("a hole within a file, too", [a_segment("a", (0, 3), (5, 9))], [(0, 3), (5, 9)], [Gap(3, 5, 20)], []),
    ("of snapshots within known history only the latest is used",
     [a_segment("a", (0, 30)), a_snapshot(10), a_snapshot(20)], [(0, 30)], [], [20]),
    ("where the beginning is cut off, the first snapshot is", [a_segment("a", (8, 30)), a_snapshot(10), a_snapshot(15),
     a_snapshot(20)], [(8, 30)], [], [10, 20]),
    ("a snapshot where the log begins closes no gap, for there is none", [a_segment("a", (10, 30)), a_snapshot(10)],
     [(10, 30)], [], [10]),
    ("a snapshot before the log leaves a gap behind it", [a_segment("a", (10, 30)), a_snapshot(4)],
     [(10, 30)], [Gap(4, 10, 35)], [4]),
    ("a snapshot within a gap divides it", [a_segment("a", (0, 9)), a_segment("a", (20, 30)), a_snapshot(15)],
     [(0, 9), (20, 30)], [Gap(9, 15, 80), Gap(15, 20, 145)], [15]),
    ("a snapshot behind a gap tells the state again",
     [a_segment("a", (0, 9)), a_segment("a", (20, 30)), a_snapshot(25)], [(0, 9), (20, 30)], [Gap(9, 20, 80)], [25]),
    ("snapshots alone are states with unknown time between", [a_snapshot(5), a_snapshot(9)], [], [Gap(5, 9, 45)],
     [5, 9]),
    ("of two snapshots at an offset the later epoch's is used", [a_segment("a", (7, 9)), a_snapshot(7, epoch=1),
     a_snapshot(7, epoch=3)], [(7, 9)], [], [7]),
]  # fmt: skip


@pytest.mark.parametrize(("files", "spans", "gaps", "used"), [case[1:] for case in CASES], ids=[c[0] for c in CASES])
def test_what_is_there(files: list[tuple[MetadataFile, Walked]], spans: object, gaps: object, used: object) -> None:
    there = inventory([f for f, _ in files], {str(f.path): w for f, w in files})
    assert [(s.start, s.end) for s in there.spans] == spans
    assert list(there.gaps) == gaps
    assert [s.offset for s in there.snapshots] == used


OPENING = [  # spans, snapshots, those that tell a state to which the log does not lead
    ([(0, 30)], [10, 20], []),
    ([(8, 30)], [10, 15, 20], [10]),
    ([(10, 30)], [10, 30], [10]),
    ([(0, 9), (20, 30)], [9, 25, 30], [25]),
    ([(0, 9), (20, 30)], [15, 20, 30], [15, 20]),
    ([(0, 9), (20, 30), (40, 50)], [5, 20, 45], [20, 45]),
    ([], [5, 9], [5, 9]),
]


@pytest.mark.parametrize(("spans", "snapshots", "opening"), OPENING)
def test_which_snapshots_open_what_is_known(
    spans: list[tuple[int, int]], snapshots: list[int], opening: list[int]
) -> None:
    files = [*([a_segment("a", *spans)] if spans else []), *map(a_snapshot, snapshots)]
    there = inventory([f for f, _ in files], {str(f.path): w for f, w in files})
    assert [s.offset for s in there.opening] == opening
    assert set(opening) <= {s.offset for s in there.snapshots}


def test_of_two_snapshots_at_an_offset_the_file_of_the_later_epoch_is_read() -> None:
    files = [a_snapshot(7, epoch=1), a_snapshot(7, epoch=3)]
    there = inventory([f for f, _ in files], {str(f.path): w for f, w in files})
    assert there.snapshot_files == {7: "/s/00000000000000000007-0000000003.checkpoint"}


def test_what_was_before_the_first_state_is_unknown_not_empty() -> None:
    files = [a_segment("a", (10, 30)), a_snapshot(10)]
    there = inventory([f for f, _ in files], {str(f.path): w for f, w in files})
    rows = [(row["kind"], row["from_offset"], row["to_offset"], row["reason"]) for row in there.coverage()]
    assert rows == [
        ("unknown", 0, 10, "before the first record"),
        ("snapshot", 10, 10, None),
        ("log", 10, 30, None),
    ]
    assert there.first_offset == 10


def test_a_snapshot_that_is_cut_in_half_is_named_and_not_used() -> None:
    no_footer, damaged = a_snapshot(5, is_whole=False), a_snapshot(6)
    damaged = (damaged[0], damaged[1]._replace(problems=(Problem(3, "torn", "the last batch has 4 of its 80 bytes"),)))
    files = [a_segment("a", (3, 9)), no_footer, damaged]
    there = inventory([f for f, _ in files], {str(f.path): w for f, w in files})
    assert there.snapshots == ()
    assert "has no footer" in there.problems[0]
    assert there.problems[1].endswith("is not used: the last batch has 4 of its 80 bytes")


# -- whose log --------------------------------------------------------------------------------------------------------


def a_file(folder: str, *, size: int = 1, cluster: str | None = None) -> MetadataFile:
    return MetadataFile(path=Path(folder) / f"{0:020}.log", size=size, offset=0, cluster=cluster)


def test_folders_that_share_a_topic_are_of_one_cluster_and_the_smaller_one_is_left_out() -> None:
    files = [a_file("/1"), a_file("/2"), a_file("/x", size=3, cluster="other")]
    chosen, others, told = one_cluster(files, [["/1", "/2"], ["/2"], ["/x"]])
    assert [f.folder for f in chosen] == ["/x"]
    assert [f.folder for f in others] == ["/1", "/2"]
    assert told[0] == "/1: the metadata log of another cluster, left out beside that of cluster other"


def test_a_cluster_id_that_was_copied_does_not_make_two_clusters_one() -> None:
    files = [a_file("/1", size=5, cluster="same"), a_file("/x", cluster="same")]
    assert [f.folder for f in one_cluster(files, [["/1"], ["/x"]])[1]] == ["/x"]


def test_a_folder_that_names_nothing_goes_with_its_cluster_id() -> None:
    files = [a_file("/1", size=5, cluster="same"), a_file("/2", cluster="same"), a_file("/x", cluster="other")]
    chosen, others, _ = one_cluster(files, [["/1"], ["/x"]])
    assert ([f.folder for f in chosen], [f.folder for f in others]) == (["/1", "/2"], ["/x"])


# -- files ------------------------------------------------------------------------------------------------------------


def test_files_are_found_by_their_names_and_say_whose_they_are(tmp_path: Path) -> None:
    log = tmp_path / "data" / "__cluster_metadata-0"
    log.mkdir(parents=True)
    (tmp_path / "data" / "meta.properties").write_text("#\nnode.id=3\ncluster.id=abc\n")
    for name in (
        f"{0:020}.log",
        f"{122:020}-{4:010}.checkpoint",
        "quorum-state",
        f"{0:020}.index",
        "x.checkpoint.part",
    ):
        (log / name).write_bytes(b"x")
    topic = tmp_path / "data" / "orders-0"
    topic.mkdir()
    (topic / f"{0:020}.log").write_bytes(b"x")
    found, without = metadata_files([tmp_path / "data", topic])
    assert [(f.offset, f.epoch, f.node, f.cluster) for f in found] == [(0, None, 3, "abc"), (122, 4, 3, "abc")]
    assert without == [topic]


def test_a_link_that_is_named_like_a_topic_may_lead_to_a_metadata_log(tmp_path: Path) -> None:
    log = tmp_path / "data" / FOLDER
    log.mkdir(parents=True)
    (log / f"{0:020}.log").write_bytes(b"x")
    (tmp_path / "node-1").symlink_to(log)
    assert [file.path for file in metadata_files([tmp_path / "node-1"])[0]] == [tmp_path / "node-1" / f"{0:020}.log"]


@pytest.mark.parametrize(("name", "said"), [("missing", "no such file or folder"), ("", "no metadata log in")])
def test_nothing_to_read_is_refused_with_what_is_expected(tmp_path: Path, name: str, said: str) -> None:
    with pytest.raises(ReplayRefused, match=said):
        metadata_files([tmp_path / name])


# -- transactions -----------------------------------------------------------------------------------------------------

#: Offsets 20 to 30 and 50 to 60 are in no file.
GAP_STARTS = (20, 50)
MARKERS = [  # what, markers, offsets that do not count, (committed, aborted, unfinished)
    ("one that was committed counts", [(1, BEGIN), (7, END)], [], (1, 0, 0)),
    ("one that was aborted does not", [(1, BEGIN), (7, ABORT)], [(1, 7)], (0, 1, 0)),
    ("one that never ended does not", [(70, BEGIN)], [(70, None)], (0, 0, 1)),
    ("one whose end may be in a gap does not, up to that", [(1, BEGIN)], [(1, 19)], (0, 0, 1)),
    ("so does one that another cut off behind a gap", [(31, BEGIN), (70, BEGIN), (71, END)], [(31, 49)], (1, 0, 1)),
    ("one that ends behind a gap counts", [(1, BEGIN), (40, END)], [], (1, 0, 0)),
    ("one that was aborted behind a gap does not", [(1, BEGIN), (40, ABORT)], [(1, 40)], (0, 1, 0)),
    ("one that another cut off does not", [(1, BEGIN), (5, BEGIN), (9, END)], [(1, 4)], (1, 0, 1)),
    ("an end without a beginning means nothing", [(5, END), (6, ABORT)], [], (0, 0, 0)),
]


@pytest.mark.parametrize(("markers", "spans", "counts"), [case[1:] for case in MARKERS], ids=[c[0] for c in MARKERS])
def test_transactions(markers: list[tuple[int, int]], spans: object, counts: tuple[int, int, int]) -> None:
    counted = dict(zip(("committed", "aborted", "unfinished"), counts, strict=True))
    assert left_out(markers, GAP_STARTS) == (spans, counted)


# -- deposed controllers ----------------------------------------------------------------------------------------------


@settings(max_examples=15)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), min_size=1, max_size=4))
@example([(0, 4), (0, 0), (3, 0)])
@example([(0, 4), (1, 2), (3, 0)])
@example([(0, 1), (1, 5), (7, 1), (0, 2)])
@example([(0, 3), (3, 1), (4, 0), (1, 4)])
def test_what_a_deposed_controller_wrote_does_not_count_wherever_later_ones_begin(terms: list[tuple[int, int]]) -> None:
    """Terms: how many records the next controller has not got of what was there, and how many changes it writes. Each
    has its log as it was when it was deposed."""
    log = [(1, elected(0, 1000, 1)), (1, batch(1, 1001, topic(1, "a"))), (1, batch(2, 1002, partition(1, 0, [1, 2])))]
    with TemporaryDirectory() as folder:
        for epoch, (lost, changes) in enumerate(terms, start=2):
            log = log[: max(3, len(log) - lost)]
            log.append((epoch, elected(len(log), 1000 + len(log), 1, epoch=epoch)))
            for _ in range(changes):
                said = batch(len(log), 1000 + len(log), change(1, 0, isr=[1]), epoch=epoch)
                log.append((epoch, said))
            place = Path(folder) / str(9 - epoch) / FOLDER
            place.mkdir(parents=True)
            (place / f"{0:020}.log").write_bytes(b"".join(said for _, said in log))
        found = local.read(metadata_files([Path(folder)])[0]).changes["a", 0]
    expected = [(n, epoch) for n, (epoch, _) in enumerate(log) if n > 1 and log[n - 1][0] == epoch]
    assert [(change.offset, change.controller_epoch) for change in found] == expected
