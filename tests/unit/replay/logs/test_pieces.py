"""Files in pieces: wherever they are cut, the same facts come out, as from the whole file read line by line."""

from __future__ import annotations

import gzip
import random
import re
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from broker_sim.replay.logs import pieces
from broker_sim.replay.logs.facts import BAD, Fact
from broker_sim.replay.logs.frames import facts_of_piece
from broker_sim.replay.logs.pieces import Line, Piece, TornFile, kept_lines, pieces_of
from broker_sim.replay.logs.reader import KEPT_PATTERN, LogReader

LINES = [
    "\tmin.insync.replicas = 1",  # of a dump that began in the file before
    "[2020-09-01 12:00:00,000] INFO KafkaConfig values: ",
    "\tadvertised.listeners = null",
    "\treplica.lag.time.max.ms = 10000",
    "\tmin.insync.replicas = 2",
    " (kafka.server.KafkaConfig)",
    "[2020-09-01 12:00:01,000] INFO [Partition orders-0 broker=1] ISR updated to 1,2  and version updated to 1 "
    "(kafka.cluster.Partition)",
    "[2020-09-01 12:00:02,000] INFO Kafka startTimeMs: 1598961600000 (org.apache.kafka.common.utils.AppInfoParser)",
    "java.lang.IllegalStateException: größer",
    "\tat java.base/java.lang.Thread.run(Thread.java:840)",
    "",
    "[2020-09-01 12:00:03,000] INFO [Partition orders-0 broker=1] ISR updated to everyone (kafka.cluster.Partition)",
    "[2020-09-01 12:00:04,000] INFO [Partition orders-1 broker=1] ISR updated to 1,2  and version updated to 7 "
    "(kafka.cluster.Partition)",
]
TEXT = "\n".join(LINES).encode() + b"\n"


def facts(file: Path, piece_bytes: int) -> list[Fact]:
    cut = pieces_of(file, file.stat().st_size, piece_bytes=piece_bytes)
    return [fact for piece in cut for fact in facts_of_piece(piece, LogReader(ZoneInfo("UTC"), 1))]


def kept(piece: Piece) -> list[Line]:
    return list(kept_lines(piece))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "server.log").write_bytes(TEXT)
    return tmp_path / "server.log"


def test_what_comes_out_does_not_depend_on_where_a_file_is_cut(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also not on how much is read at once. A setting of a dump keeps the time of the record that it stands in.

    The first piece has the first record: a setting before it waits for its time.
    """
    whole = facts(file, len(TEXT))
    assert [(f.what, f.key, f.value, f.at_us % 10_000_000) for f in whole] == [
        ("config", "min.insync.replicas", "1", 0),
        ("config", "replica.lag.time.max.ms", "10000", 0),
        ("config", "min.insync.replicas", "2", 0),
        ("updated", None, None, 1_000_000),
        (BAD, "unknown_text", LINES[11], 0),
        ("updated", None, None, 4_000_000),
    ]
    first_record = len(LINES[0]) + 1
    for block_bytes in (1, 7, 100, 4096):
        monkeypatch.setattr(pieces, "_BLOCK_BYTES", block_bytes)
        for piece_bytes in range(first_record + 1, len(TEXT) + 1, 1 if block_bytes == 100 else 29):
            assert facts(file, piece_bytes) == whole, (block_bytes, piece_bytes)


@pytest.mark.parametrize(
    ("zone", "hour", "before_ms"),
    [("Europe/Berlin", "2024-10-27{}02", 7_200_000), ("Australia/Lord_Howe", "2024-04-07{}01", 39_600_000)],
)
@pytest.mark.parametrize("form", ["[{} {},000] INFO {} (a.B)", "kafka-1  | {}T{},000 INFO {} (a.B) [main]"])
def test_a_line_that_says_nothing_tells_that_an_hour_is_passed_again(
    tmp_path: Path, zone: str, hour: str, before_ms: int, form: str
) -> None:
    day, _, hh = hour.partition("{}")
    updated = "[Partition orders-0 broker=1] ISR updated to 1,2  and version updated to {}"
    said = [("35", updated.format(1)), ("58", "no"), ("32", "no"), ("45", updated.format(2)), ("50", updated.format(3))]
    (tmp_path / "x.log").write_text("".join(form.format(day, f"{hh}:{m}:00", text) + "\n" for m, text in said))
    (piece,) = pieces_of(tmp_path / "x.log", 10_000)
    found = [fact.at_us // 1000 for fact in facts_of_piece(piece, LogReader(ZoneInfo(zone), 1))]
    first = datetime.fromisoformat(f"{day}T{hh}:00+00:00").timestamp() * 1000 - before_ms
    again = 3_600_000 if zone == "Europe/Berlin" else 1_800_000
    assert [ms - first for ms in found] == [2_100_000, 2_700_000 + again, 3_000_000 + again]


def test_lines_are_kept_as_the_pattern_says_and_numbered_by_where_they_begin(file: Path) -> None:
    told = kept(Piece(str(file), 0, len(TEXT)))
    assert [line.text for line in told] == [line for line in LINES if re.search(KEPT_PATTERN, line)]
    assert all(TEXT[line.at :].startswith(line.text.encode()) for line in told)


@pytest.mark.parametrize("ending", ["\r\n", "\r"])
def test_lines_of_other_systems(file: Path, ending: str) -> None:
    plain = [line.text for line in kept(Piece(str(file), 0, len(TEXT)))]
    text = ending.join(LINES).encode()
    file.write_bytes(text)
    assert [line.text for line in kept(Piece(str(file), 0, len(text)))] == plain


def test_bytes_that_are_no_text_are_replaced(file: Path) -> None:
    text = TEXT.replace(b"everyone", b"every\xffone")
    file.write_bytes(text)
    assert "every\ufffdone" in " ".join(line.text for line in kept(Piece(str(file), 0, len(text))))


@pytest.mark.parametrize("name", ["server.log.gz", "server.log.1", "server.log-20200901.GZ"])
def test_a_packed_file_is_one_piece_and_says_the_same(file: Path, name: str) -> None:
    packed = file.with_name(name)
    packed.write_bytes(gzip.compress(TEXT[:300]) + gzip.compress(TEXT[300:]))
    (piece,) = pieces_of(packed, packed.stat().st_size, piece_bytes=10)
    assert kept(piece) == kept(Piece(str(file), 0, len(TEXT)))


def test_a_file_that_was_unpacked_and_kept_its_name_is_read_as_it_is(file: Path) -> None:
    unpacked = file.rename(file.with_name("server.log.gz"))
    assert [line for piece in pieces_of(unpacked, len(TEXT)) for line in kept(piece)] == kept(
        Piece(str(unpacked), 0, len(TEXT))
    )
    assert kept(*pieces_of(unpacked, len(TEXT)))


def test_a_packed_file_that_ends_early_is_read_as_far_as_it_goes_and_told_of(tmp_path: Path) -> None:
    """But for its last line, which may be half a line."""
    noise = random.Random(1)
    text = TEXT + b"".join(noise.randbytes(60).hex().encode() + b"\n" for _ in range(2000)) + TEXT
    packed = gzip.compress(text)
    (tmp_path / "cut.log.gz").write_bytes(packed[: len(packed) // 2])
    piece, lines = Piece(str(tmp_path / "cut.log.gz"), 0, None), []
    with pytest.raises(TornFile, match="cannot be unpacked beyond about"):
        lines.extend(line for line in kept_lines(piece))
    told = [fact for fact in facts_of_piece(piece, LogReader(ZoneInfo("UTC"), 1)) if fact.what == BAD]
    assert [fact.key for fact in told] == ["unknown_text", "torn"]
