"""The figures beside a real Kafka: how they are computed, and that they are what docs/replay-validation.md says."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from broker_sim.replay.cli import main
from broker_sim.replay.errors import ReplayRefused
from broker_sim.replay.validation import job as validation_job
from broker_sim.replay.validation.figures import (
    Change,
    OutageFigures,
    RulesFigures,
    RunFigures,
    State,
    StatesFigures,
    broken_limits,
    match,
    outage_figures,
    outages_of,
    page,
    read_truth,
    states_figures,
)
from broker_sim.replay.validation.kraft import KraftFigures, broken_kraft_limits

ROOT: Final = Path(__file__).parents[4]
RUNS: Final = ROOT.parent / "shared" / "data" / "isr"
KRAFT_RUNS: Final = ROOT / "tests" / "kraft_runs"
SHARED_KRAFT: Final = ROOT.parent / "shared" / "data" / "kraft"
PAGE: Final = ROOT / "docs" / "replay-validation.md"
SHRINK, EXPAND = "isr_shrink", "isr_expand"

beside_recordings = pytest.mark.skipif(
    not RUNS.is_dir(), reason="the recorded runs of a real cluster are not beside the repository (../shared/data/isr)"
)


def state(version: int, isr: list[int], by: str, **more: Any) -> str:
    row = {"kind": "state", "op": "set", "topic": "t", "partition": 0, "leader": 1, "leader_epoch": 0, "ts": version}
    return json.dumps({**row, "version": version, "isr": isr, "by": by, **more})


def test_the_truth_is_what_leaders_wrote_one_replica_at_a_time() -> None:
    told = [state(0, [1, 2, 3], "controller"), state(1, [1], "leader"), state(2, [1, 3], "leader")]
    truth = read_truth([*told, state(3, [3], "controller"), json.dumps({"kind": "broker", "op": "delete"})])
    changes = [(change.kind, change.replica, change.ts) for change in truth.changes]
    assert changes == [(SHRINK, 2, 1), (SHRINK, 3, 1), (EXPAND, 3, 2)]
    assert [key[2] for key in truth.states] == [0, 1, 2, 3]


def change(kind: str, ts: int, replica: int = 3) -> Change:
    return Change("t", 0, kind, replica, ts)


def test_a_partition_begins_with_the_first_state_that_is_told_of_it() -> None:
    """No change led to it, whoever wrote it; and a deletion is no state."""
    gone = json.dumps({"kind": "state", "op": "delete", "topic": "t", "partition": 0, "ts": 7})
    truth = read_truth([state(4, [1, 2], "leader"), gone, state(9, [1, 2, 3], "leader")])
    assert truth.changes == (Change("t", 0, EXPAND, 3, 9),)
    assert {version for _, _, version in truth.states} == {4, 9}


@pytest.mark.parametrize(("off_ms", "is_twin"), [(0, True), (2_000, True), (-2_000, True), (2_001, False)])
def test_twins_are_two_seconds_apart_at_most(off_ms: int, is_twin: bool) -> None:
    found = match([change(SHRINK, 10_000)], [change(SHRINK, 10_000 - off_ms)])
    assert (found.errors_ms, len(found.missing), len(found.spurious)) == (([off_ms], 0, 0) if is_twin else ([], 1, 1))


def test_states_that_were_never_written_count_however_many_are_lacking() -> None:
    truth = read_truth([state(version, [1, 2], "controller") for version in range(3)])
    right, wrong = truth.states["t", 0, 0], State(frozenset({1}), 1, 0)
    replayed = {("t", 0, 0): right, ("t", 0, 1): wrong, ("t", 0, 8): right}
    assert states_figures(truth, replayed) == StatesFigures(written=3, exact=1, extra=1)


def test_an_outage_ends_once_whoever_leads_later() -> None:
    leaders = [(0, 1), (15, 2), (20, 3), (40, 1), (50, 2)]
    written = [json.loads(state(at, [1, 2, 3], "controller", leader=leader)) for at, leader in leaders]
    assert outages_of(written, [(10, 1)]) == [("t", 0, 10, 15)]
    assert outages_of(written, [(10, 1), (45, 1)]) == [("t", 0, 10, 15), ("t", 0, 45, 50)]
    assert outages_of(written, [(10, 3)]) == []


def test_each_change_has_one_twin_and_the_rest_is_told() -> None:
    truth = [change(SHRINK, 1000), change(EXPAND, 5000), change(SHRINK, 9000)]
    derived = [change(SHRINK, 1003), change(SHRINK, 990), change(EXPAND, 4990), change(SHRINK, 9000, replica=2)]
    matched = match(truth, derived, refused=[change(SHRINK, 9500, replica=2)])
    assert matched.errors_ms == [-3, 10]
    assert matched.missing == [change(SHRINK, 9000)]
    assert matched.spurious == [change(SHRINK, 990)]


GOOD = RulesFigures(changes=2, found=2, spurious=8, errors_ms=(5, -5), caught_up_errors_ms=(0,), hw_rows=4, hw_found=4)


@pytest.mark.parametrize(
    ("run", "broken"),
    [
        (RunFigures(run="r", trace=GOOD, states=StatesFigures(written=3, exact=3, extra=0)), 0),
        (RunFigures(run="r", states=StatesFigures(written=3, exact=2, extra=0)), 1),
        (RunFigures(run="r", states=StatesFigures(written=3, exact=3, extra=1)), 1),
        (RunFigures(run="r", requests=RulesFigures(changes=2, found=1, spurious=0, errors_ms=(0,))), 1),
        (
            RunFigures(
                run="r",
                trace=RulesFigures(
                    changes=2, found=1, spurious=9, errors_ms=(6,), caught_up_errors_ms=(1,), hw_rows=4, hw_found=3
                ),
            ),
            5,
        ),
    ],
)
def test_limits(run: RunFigures, broken: int) -> None:
    assert len(broken_limits([run])) == broken


STATES = [
    {"kind": "state", "topic": "t", "partition": 0, "ts": 10, "leader": 2},
    {"kind": "state", "topic": "t", "partition": 1, "ts": 10, "leader": 1},
    {"kind": "broker", "ts": 60},
    {"kind": "state", "topic": "t", "partition": 0, "ts": 100, "leader": -1},
    {"kind": "state", "topic": "t", "partition": 0, "ts": 5_100, "leader": 3},
]


def window(kind: str, partition: int, from_ts: int, to_ts: int) -> dict[str, Any]:
    return {"topic": "t", "partition": partition, "window": kind, "from_ts": from_ts, "to_ts": to_ts}


def test_an_outage_is_from_the_kill_of_a_leader_to_the_write_of_the_next() -> None:
    truth = outages_of(STATES, [(50, 2)])
    assert truth == [("t", 0, 50, 5_100)]
    windows = [window("offline", 0, 400, 5_090), window("offline", 1, 50, 60), window("reassigning", 0, 0, 9_000)]
    figures = outage_figures(truth, windows)
    assert (figures.killed, figures.found, figures.begin_errors_ms, figures.end_errors_ms) == (1, 1, (350,), (-10,))
    assert outage_figures(truth, windows[1:]).found == 0


@pytest.mark.parametrize(
    ("words", "everything", "outages"),
    [
        ("1 changes found", RulesFigures(changes=2, found=1, spurious=0, errors_ms=(0,)), None),
        ("invented", RulesFigures(changes=2, found=2, spurious=3, errors_ms=(0,)), None),
        ("1 of 2 outages", None, OutageFigures(killed=2, found=1, begin_errors_ms=(9,), end_errors_ms=(9,))),
        ("5000 ms", None, OutageFigures(killed=1, found=1, begin_errors_ms=(5_000,), end_errors_ms=(0,))),
    ],
)
def test_limits_of_all_files_at_once(words: str, everything: RulesFigures, outages: OutageFigures) -> None:
    requests = RulesFigures(changes=2, found=2, spurious=2, errors_ms=(0,))
    (broken,) = broken_limits([RunFigures(run="r", requests=requests, everything=everything, outages=outages)])
    assert words in broken


def errors(of: str, errors_ms: tuple[int, ...]) -> RunFigures:
    """A run that is right but for these errors."""
    if of in ("begin_errors_ms", "end_errors_ms"):
        small = {"begin_errors_ms": (9, -9), "end_errors_ms": (-9, 9)}
        return RunFigures(run="r", outages=OutageFigures(killed=2, found=2, **small | {of: errors_ms}))
    return RunFigures(run="r", trace=replace(GOOD, **{of: errors_ms}))


@pytest.mark.parametrize("sign", [1, -1], ids=["late", "early"])
@pytest.mark.parametrize(
    ("of", "others", "times", "most"),
    [
        ("begin_errors_ms", (-3, 3), 1, 1_500),
        ("end_errors_ms", (-3, 3), 1, 500),
        ("errors_ms", (-3, 0, 3), 3, 5),
        ("errors_ms", (0,) * 18, 1, 60),
        ("caught_up_errors_ms", (-3, 3), 3, 0),
    ],
)
def test_what_is_too_early_breaks_limits_as_what_is_too_late(
    of: str, others: tuple[int, ...], times: int, most: int, sign: int
) -> None:
    """`times`: how many it takes, beside `others`."""
    assert broken_limits([errors(of, (*others, *[sign * most] * times))]) == []
    (broken,) = broken_limits([errors(of, (*others, *[sign * (most + 1)] * times))])
    assert str(most + 1) in broken


def test_the_page_tells_how_far_outages_are_off_at_worst_and_to_which_side() -> None:
    worst = OutageFigures(killed=3, found=3, begin_errors_ms=(9, -70, 50), end_errors_ms=(-9, 80, 0))
    assert page([RunFigures(run="r", everything=GOOD, outages=worst)]).count("| 3 | 3 | -70 | 80 |") == 1


def test_a_folder_without_runs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ReplayRefused, match="no run in"):
        validation_job.look([tmp_path])
    (tmp_path / "truth.jsonl").write_text("[]\n")
    with pytest.raises(ReplayRefused, match="is no truth of a run"):
        validation_job.validate(validation_job.look([tmp_path]))


_STATE = json.dumps(
    {"kind": "state", "op": "create", "topic": "t", "partition": 0, "version": 0, "isr": [1], "leader": 1}
    | {"leader_epoch": 0, "ts": 1, "by": "controller"}
)
_LINE = b"[2020-09-01 12:00:00,000] INFO [KafkaServer id=1] started (kafka.server.KafkaServer)\n"
_TICK = b'{"seq":0,"ts":1,"broker":1,"ev":"tick"}\n'
#: a file of a run and what it has -> what is said of it
DAMAGED: list[tuple[str, bytes, str]] = [
    ("truth.jsonl", b'{"kind":"state"', "is no truth of a run"),
    ("truth.jsonl", b"\xff\n", "is no truth of a run"),
    ("trace.jsonl.gz", gzip.compress(_TICK * 9)[:-9], "cannot be read: Compressed file ended"),
    ("trace.jsonl.gz", _TICK, "cannot be read: Not a gzipped file"),
    ("trace.jsonl.gz", gzip.compress(_TICK + b"{"), "cannot be read: "),
    ("trace.jsonl.gz", gzip.compress(_TICK + b"[1]\n"), "cannot be read: line 2 is no row of a trace"),
    ("trace.jsonl.gz", gzip.compress(_TICK + b'{"ev":"tick"}\n'), "cannot be read: line 2 is no row of a trace"),
    ("trace.jsonl.gz", gzip.compress(_TICK.replace(b"tick", b"hw")), "cannot be read: line 1 is no row of a trace"),
    ("server.log.gz", gzip.compress(_LINE * 9)[:-9], "cannot be read: Compressed"),
    ("actions.jsonl", b"{", "cannot be read: "),
    ("actions.jsonl", b"[1]\n", "cannot be read: "),
    ("scenario.md", b"\xff", "cannot be read: "),
]  # fmt: skip


@pytest.mark.parametrize(("name", "content", "message"), DAMAGED, ids=range(len(DAMAGED)))
def test_a_run_that_cannot_be_read_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, content: bytes, message: str
) -> None:
    (tmp_path / "truth.jsonl").write_text(_STATE)
    (tmp_path / "kafka-request.log").write_bytes(_LINE)
    (tmp_path / name).write_bytes(content)
    assert main(["validate", "--runs", str(tmp_path), "--everything"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"replay: {tmp_path / name} ") and message in line


@pytest.mark.parametrize("other", [None, "notes.txt", "server.properties"])
def test_a_run_with_nothing_to_hold_against_its_truth_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], other: str | None
) -> None:
    """A page of no figures would look as if all were well."""
    (tmp_path / "truth.jsonl").write_text(_STATE)
    if other is not None:
        (tmp_path / other).touch()
    assert main(["validate", "--runs", str(tmp_path)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    expected = "expected trace.jsonl.gz, or log files of its brokers"
    assert said.err == f"replay: {tmp_path} has nothing beside truth.jsonl: {expected}\n"


def test_figures_that_cannot_be_written_are_shown_all_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "truth.jsonl").write_text(_STATE)
    (tmp_path / "trace.jsonl.gz").write_bytes(gzip.compress(_TICK))
    words = ["validate", "--runs", str(tmp_path), "--page", str(tmp_path / "none" / "page.md")]
    assert main(words) == 2
    said = capsys.readouterr()
    assert f"| {tmp_path.name} | 0 | 0 | 0 |" in said.out
    assert said.err.endswith("page.md: No such file or directory\n")


@beside_recordings
def test_log_files_at_their_default_levels_tell_every_state_write() -> None:
    figures = validation_job.validate(validation_job.look([RUNS]), ways=("states",))
    assert broken_limits(figures) == []
    assert sum(run.states.written for run in figures if run.states is not None) == 498


def test_recorded_kraft_runs_are_exact_and_their_logs_tell_all_that_leaders_did() -> None:
    figures = validation_job.validate(validation_job.look([KRAFT_RUNS]))
    assert broken_limits(figures) == []
    told = [run.kraft for run in figures if run.kraft is not None]
    assert [(f.run, f.changes, f.exact_changes) for f in told] == [("controllers", 132, 132), ("elr", 114, 114)]
    assert [(f.by_leaders, f.found, f.known_changes) for f in told] == [(51, 51, 51), (36, 36, 34)]


def test_kraft_limits() -> None:
    exact = KraftFigures(run="a", versions=10, exact=10, invented=0, changes=5, exact_changes=5)
    assert list(broken_kraft_limits([exact])) == []
    broken = replace(exact, exact=9, by_leaders=100, found=97, log_invented=1)
    assert [line.split(" ", 1)[0] for line in broken_kraft_limits([broken])] == ["a:", "a:", "from"]
    assert list(broken_kraft_limits([replace(exact, invented=2)])) == [
        "a: 10 of 10 versions exact from the metadata log, 2 invented"
    ]
    assert list(broken_kraft_limits([replace(exact, by_leaders=100, found=98)])) == []


@beside_recordings
@pytest.mark.kafka
def test_the_page_says_what_comes_out() -> None:
    figures = validation_job.validate(validation_job.look([RUNS, KRAFT_RUNS, SHARED_KRAFT]))
    assert broken_limits(figures) == []
    assert page(figures) == PAGE.read_text(encoding="utf-8")


@beside_recordings
@pytest.mark.slow
def test_all_files_of_a_run_with_a_killed_broker_at_once_invent_nothing() -> None:
    (figures,) = validation_job.validate([RUNS / "kill-and-restarts"], ways=("everything",))
    assert figures.everything is not None and figures.outages is not None
    assert (figures.everything.found, figures.everything.spurious) == (figures.everything.changes, 0)
    assert (figures.outages.killed, figures.outages.found) == (3, 3)
    assert broken_limits([figures]) == []
