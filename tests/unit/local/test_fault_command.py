"""`kwob fault`: rows by flags, the table, ends, scenarios; what does not fit the cluster is refused."""

from __future__ import annotations

import contextlib
import fcntl
import json
import re
import shlex
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from controller.local import cluster, cluster_file, fault, fault_topics
from controller.local import fault_file as fault_rows
from controller.local.place import own_folder
from controller.local.plan import plan_cluster
from controller.wire.fault_rows import (
    FAULT_FILE,
    KINDS,
    Fault,
    PauseReplication,
    SlowDisk,
    decode,
    encode,
    parse_row,
)
from tests.forked import forked_off


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    """A folder with three brokers in racks a, b, a; this process holds it as `kwob up` does."""
    plan = plan_cluster(data=tmp_path, brokers=3, controllers=1, racks=["a", "b"], ports=[1, 2, 3], zookeeper_port=4)
    cluster_file.write_cluster(tmp_path, cluster.Cluster(plan).row())
    with own_folder(tmp_path):
        yield tmp_path


def rows(data: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (data / FAULT_FILE).read_text().splitlines()]


def run(data: Path, *argv: str) -> int:
    return fault.main([*argv, "--data", str(data)])


CALLS = [
    (["slow-disk", "--broker", "1", "--bytes-per-second", "9"],
     {"fault": "slow_disk", "broker": 1, "bytes_per_second": 9}),
    (["slow-link", "--broker", "1,2", "--peer", "3", "--delay-ms", "5", "--jitter-ms", "2"],
     {"fault": "slow_link", "broker": [1, 2], "peer": 3, "delay_ms": 5, "jitter_ms": 2}),
    (["cut-link", "--rack", "b"], {"fault": "cut_link", "rack": "b"}),
    (["api", "--all", "--api", "Fetch", "--action", "error", "--error-code", "FENCED_LEADER_EPOCH", "--every", "3"],
     {"fault": "api", "api": "Fetch", "action": "error", "error_code": 74, "every": 3}),
    (["kill", "--rack", "a"], {"fault": "kill", "rack": "a"}),
    (["stop", "--broker", "3"], {"fault": "stop", "broker": 3}),
    (["stop", "--broker", "1, 3"], {"fault": "stop", "broker": [1, 3]}),
    (["stop", "--broker", "1", "--broker", "3"], {"fault": "stop", "broker": [1, 3]}),
    (["expire-session", "--broker", "2"], {"fault": "expire_session", "broker": 2}),
    (["pause-replication", "--broker", "2", "--topic", "t", "--partition", "1"],
     {"fault": "pause_replication", "broker": 2, "topic": "t", "partition": 1}),
]  # fmt: skip


@pytest.mark.parametrize(("argv", "expected"), CALLS, ids=[call[0][0] for call in CALLS])
def test_flags_are_columns(data: Path, argv: list[str], expected: dict[str, Any]) -> None:
    assert run(data, *argv) == 0
    (row,) = rows(data)
    assert row.pop("until_ms", None) is None or argv[0] == "expire-session"
    assert row == {**expected, "id": "f1"}


@pytest.mark.parametrize("kind", [kind.replace("_", "-") for kind in KINDS])
def test_the_examples_of_a_kind_can_be_typed(data: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        fault.main([kind, "--help"])
    examples = re.findall(r"^  kwob fault (.+)$", capsys.readouterr().out, re.MULTILINE)
    assert len(examples) == 2
    for example in examples:
        assert run(data, *shlex.split(example)) == 0, example


@pytest.mark.parametrize("kind", ["fail-log-dir", "slow-disk"])
@pytest.mark.parametrize("told", ["broker-2/data", "{data}/broker-2/data", "{data.name}/broker-2/data"])
def test_a_log_dir_is_named_as_the_status_shows_it_in_full_or_from_here(
    data: Path, monkeypatch: pytest.MonkeyPatch, kind: str, told: str
) -> None:
    monkeypatch.chdir(data.parent)
    more = ["--delay-ms", "5"] if kind == "slow-disk" else []
    assert run(data, kind, "--broker", "2", "--log-dir", told.format(data=data), *more) == 0
    (row,) = rows(data)
    assert row["log_dir"] == str(data / "broker-2" / "data")


#: flags -> how much later than now it begins and ends, in ms; None: it is in force at once, it does not end by itself
WINDOWS = [
    (["kill"], None, None),
    (["kill", "--in", "1m"], 60_000, None),
    (["kill", "--for", "2s"], None, 2_000),
    (["kill", "--in", "1m", "--for", "2s"], 60_000, 62_000),
    (["kill", "--in", "2s", "--for", "1m"], 2_000, 62_000),
    (["expire-session"], None, fault.ONCE_MS),
    (["expire-session", "--in", "1m"], 60_000, 60_000 + fault.ONCE_MS),
    (["expire-session", "--in", "1m", "--for", "1h"], 60_000, 60_000 + fault.ONCE_MS),
]


@pytest.mark.parametrize(("argv", "begins", "ends"), WINDOWS, ids=[" ".join(row[0]) for row in WINDOWS])
def test_a_window_is_the_brokers_time_of_day(
    data: Path, monkeypatch: pytest.MonkeyPatch, argv: list[str], begins: int | None, ends: int | None
) -> None:
    now = fault_rows.now_ms()
    monkeypatch.setattr(fault, "now_ms", lambda: now)
    assert run(data, *argv, "--broker", "1") == 0
    (row,) = rows(data)
    assert row.get("from_ms") == (None if begins is None else now + begins)
    assert row.get("until_ms") == (None if ends is None else now + ends)


REFUSED = [
    (["kill"], "which brokers"),
    (["kill", "--broker", "9"], "no broker 9 in this cluster; there are 1, 2, 3"),
    (["kill", "--rack", "z"], "no broker has rack 'z'; there are a, b"),
    (["kill", "--rack", "b", "--broker", "1"], "none of the brokers 1 is in rack 'b'"),
    (["slow-link", "--broker", "1", "--peer", "7", "--delay-ms", "1"], "no broker 7"),
    (["fail-log-dir", "--broker", "1", "--log-dir", "x"], "no such broker has a log directory x; there are "),
    (["slow-disk", "--broker", "1"], "nothing is slow; give --bytes-per-second, --delay-ms or --jitter-ms"),
    (["row", '{"fault": "kill", "until_ms": %s}' % ("9" * 400)], "until_ms: Input should be less than"),
    (["clear", "f9"], "no fault 'f9' is in force; there are none"),
    (["run", "absent.yaml"], "kwob fault: absent.yaml: No such file or directory\n"),
]
#: Wrong whatever the cluster is.
USAGE = (["kill"], ["slow-disk", "--broker", "1"], REFUSED[-3][0])


@pytest.mark.parametrize(("argv", "message"), REFUSED, ids=[" ".join(case[0]) for case in REFUSED])
def test_what_does_not_fit_is_refused_and_changes_nothing(
    data: Path, argv: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(data, *argv) == (2 if argv in USAGE else 1)
    assert message in capsys.readouterr().err
    assert not (data / FAULT_FILE).exists() or rows(data) == []


def test_the_table_and_the_end_of_single_faults(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(data, "kill", "--rack", "b", "--in", "1h")
    run(data, "slow-disk", "--broker", "1,3", "--delay-ms", "7", "--for", "1h")
    run(data, "expire-session", "--broker", "2")
    capsys.readouterr()
    assert run(data, "list") == 0
    table = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert table[1][:4] == ["f1", "kill", "rack", "b"]
    assert table[1][-2:] == ["in", "1h"]
    assert table[2] == ["f2", "slow_disk", "1,", "3", "delay_ms=7", "in", "force,", "1h", "left"]
    assert table[3] == ["f3", "expire_session", "2", "once,", "now"]
    run(data, "row", '{"fault": "kill", "id": "my_own", "broker": 1}')
    assert run(data, "clear", "my-own") == 1, "a dash stands for that of a kind, not of an id"
    assert run(data, "clear", "my_own") == 0
    assert run(data, "clear", "f1", "expire-session") == 0
    assert [row["id"] for row in rows(data)] == ["f2"]
    assert run(data, "kill", "--broker", "1") == 0
    assert [row["id"] for row in rows(data)] == ["f2", "f4"], "f1 is the name of one that is over"
    assert run(data, "list", "--json") == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])[1]["fault"] == "kill"


def test_a_table_that_no_terminal_shows_is_not_cut(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log_dir = str(tmp_path / ("broker-" + 100 * "1") / "data")
    fault_rows.print_faults([SlowDisk(log_dir=log_dir, delay_ms=5)], Console(highlight=False, soft_wrap=True))
    assert f"log_dir={log_dir}" in capsys.readouterr().out


@pytest.mark.parametrize("begins", [None, -5, 0, 1, 5])
@pytest.mark.parametrize("ends", [None, -1, 0, 1, 5])
def test_a_fault_is_in_force_from_its_begin_to_before_its_end(
    data: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    begins: int | None,
    ends: int | None,
) -> None:
    """To the millisecond; what is over is listed no more, what is to come is."""
    now = fault_rows.now_ms()
    for module in (fault, fault_rows):
        monkeypatch.setattr(module, "now_ms", lambda: now)
    window = {name: now + ms for name, ms in (("from_ms", begins), ("until_ms", ends)) if ms is not None}
    if begins is not None and ends is not None and ends <= begins:
        return
    row = parse_row({"fault": "kill", "broker": 1, "id": "f7", **window})
    (data / FAULT_FILE).write_text(encode([row]))
    is_over, is_to_come = ends is not None and ends <= 0, (begins or 0) > 0
    assert fault_rows.state_of(row, now).split()[0] == ("over" if is_over else "in")
    assert fault_rows.state_of(row, now).startswith("in force") is not (is_over or is_to_come)
    assert run(data, "list", "--json") == 0
    assert [each["id"] for each in json.loads(capsys.readouterr().out)] == ([] if is_over else ["f7"])


def test_a_fault_without_a_name_gets_one_that_no_other_has(data: Path) -> None:
    """Neither one that is in force nor one that somebody gave by hand, wherever that stands in the file."""
    names = [None, "f2", None, "f1", None, "mine", "f5"]
    given = [parse_row({"fault": "kill", "broker": 1, **({} if n is None else {"id": n})}) for n in names]
    named, last = fault_rows.with_ids(given)
    assert ([row.id for row in named], last) == (["f3", "f2", "f4", "f1", "f6", "mine", "f5"], 6)
    assert [row.id for row in fault_rows.with_ids(given, after=9)[0]] == ["f10", "f2", "f11", "f1", "f12", "mine", "f5"]


def test_what_is_over_goes_at_the_next_change(data: Path) -> None:
    (data / FAULT_FILE).write_text('{"fault":"kill","id":"old","until_ms":5}\n{"fault":"stop"}\n')
    assert run(data, "kill", "--broker", "1") == 0
    assert [(row["id"], row["fault"]) for row in rows(data)] == [("f1", "stop"), ("f2", "kill")]


def test_two_that_add_at_once_lose_nothing(data: Path) -> None:
    def add() -> None:
        for _ in range(10):
            assert run(data, "kill", "--broker", "1") == 0

    threads = [threading.Thread(target=add) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(row["id"] for row in rows(data)) == sorted(f"f{n}" for n in range(1, 21))


def test_who_was_forked_in_an_edit_does_not_hold_up_the_next(data: Path) -> None:
    path = data / FAULT_FILE
    with contextlib.ExitStack() as stack:

        def edit(present: tuple[Fault, ...]) -> tuple[Fault, ...]:
            stack.enter_context(forked_off())
            return present

        fault_rows.edit_faults(path, edit)
        with path.with_name(f"{path.name}.lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


SCENARIO = """
faults:
  - {fault: kill, broker: 1, for: 300ms}
  - {fault: stop, rack: b, at: 200ms, for: 200ms}
"""


@pytest.mark.parametrize("argv", [["list"], ["clear"], ["kill", "--broker", "1"]], ids=lambda argv: argv[0])
def test_a_fault_file_that_nobody_can_read_is_named_with_what_to_do(
    data: Path, argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    (data / FAULT_FILE).write_text("garbage\n")
    assert fault.main([*argv, "--data", str(data)]) == 1
    line = capsys.readouterr().err
    assert line.startswith(f"kwob fault: {data / FAULT_FILE}: fault file, line 1: not a JSON object")
    assert line.endswith("; correct it, or remove the file, which ends all faults\n")
    assert (data / FAULT_FILE).read_text() == "garbage\n"


def test_a_scenario_is_followed_to_its_end(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (data / "s.yaml").write_text(SCENARIO)
    assert run(data, "run", str(data / "s.yaml")) == 0
    out = capsys.readouterr().out
    told = [line.split()[1:3] for line in out.splitlines() if "s  " in line]
    assert told == [["begins", "kill,"], ["begins", "stop,"], ["ends", "kill,"], ["ends", "stop,"]]
    assert "is over: 2 faults in 400ms" in out
    assert rows(data) == []


def test_detached_it_leaves_its_rows_with_their_windows(data: Path) -> None:
    (data / "s.yaml").write_text(SCENARIO)
    before = fault_rows.now_ms()
    assert run(data, "run", "--detach", str(data / "s.yaml")) == 0
    kill, stop = decode((data / FAULT_FILE).read_text())
    assert kill.from_ms is not None and kill.until_ms is not None and stop.from_ms is not None
    assert kill.from_ms >= before
    assert (kill.until_ms - kill.from_ms, stop.from_ms - kill.from_ms) == (300, 200)


def test_a_scenario_names_a_log_dir_as_the_status_shows_it(data: Path) -> None:
    (data / "s.yaml").write_text("faults: [{fault: fail_log_dir, broker: 2, log_dir: broker-2/data, for: 1h}]")
    assert run(data, "run", "--detach", str(data / "s.yaml")) == 0
    assert [row["log_dir"] for row in rows(data)] == [str(data / "broker-2" / "data")]


def test_an_interrupted_scenario_takes_its_faults_along(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (data / "s.yaml").write_text("faults: [{fault: kill, broker: 1, for: 1h}]")
    run(data, "stop", "--broker", "2")

    def interrupt(seconds: float) -> None:
        assert [row["fault"] for row in rows(data)] == ["stop", "kill"]
        raise KeyboardInterrupt

    monkeypatch.setattr("controller.local.fault_run.time", SimpleNamespace(sleep=interrupt))  # other threads sleep, too
    with pytest.raises(KeyboardInterrupt):
        run(data, "run", str(data / "s.yaml"))
    assert [row["fault"] for row in rows(data)] == ["stop"]


def test_a_scenario_for_another_cluster_is_refused(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (data / "s.yaml").write_text("faults: [{fault: kill, broker: 12, for: 1s}]")
    assert run(data, "run", str(data / "s.yaml")) == 1
    assert "no broker 12" in capsys.readouterr().err
    assert not (data / FAULT_FILE).exists()


def test_where_nothing_runs_no_fault_is_put_in_force(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`kwob up` starts without faults, so it would be lost."""
    plan = plan_cluster(data=tmp_path, brokers=1, controllers=1, racks=[], ports=[1], zookeeper_port=4)
    cluster_file.write_cluster(tmp_path, cluster.Cluster(plan).row())
    (tmp_path / "s.yaml").write_text("faults: [{fault: kill, broker: 1, for: 1s}]")
    for argv in (["kill", "--broker", "1"], ["run", str(tmp_path / "s.yaml")]):
        assert run(tmp_path, *argv) == 1
        assert f"nothing runs in {tmp_path}; start it with: kwob up" in capsys.readouterr().err
    assert not (tmp_path / FAULT_FILE).exists()
    assert run(tmp_path, "list") == 0


def test_an_expired_session_is_listed_only_while_it_happens(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(data, "expire-session", "--broker", "1") == 0
    assert rows(data)[0]["until_ms"] - fault_rows.now_ms() <= fault.ONCE_MS
    (row,) = decode((data / FAULT_FILE).read_text())
    assert fault_rows.is_over(row, fault_rows.now_ms() + fault.ONCE_MS)


def test_a_topic_that_there_is_not_is_remarked_on(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [PauseReplication(topic="nosuch"), PauseReplication(topic="t", partition=3), PauseReplication(topic="t")]
    fault_topics.remark(rows, {"t": 3})
    assert capsys.readouterr().err.splitlines() == [
        "kwob fault: note: there is no topic nosuch now; the fault waits for it",
        "kwob fault: note: there is no partition t-3 now; the fault waits for it",
    ]


@pytest.mark.parametrize("length", ["0", "0s", "0.0001ms"])
def test_a_fault_of_no_length_is_refused(data: Path, length: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It would be over before any broker looks."""
    with pytest.raises(SystemExit, match="2"):
        run(data, "kill", "--broker", "1", "--for", length)
    assert "--for: must be longer than 0" in capsys.readouterr().err
