"""`kwob sim`: exit codes, what a failure shows, and the same world again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.sim import command, watchers
from controller.sim.cluster import Cluster
from controller.sim.history import History
from controller.sim.many import play_in_processes, play_seed
from controller.sim.plan import draw_plan
from controller.sim.play import KINDS, Outcome, Play, play
from controller.wire import log_events as ev
from controller.world.crew import WorkerLost

pytestmark = pytest.mark.sim
#: A small, quick world.
_CLIENTS = ("group_members=0", "crowd=0", "keyed_producers=0", "replica_probers=0")
SMALL = [f"--set={change}" for change in ("steps=2", "brokers=2", "controllers=1", "partitions=1", *_CLIENTS)]


def never(cluster: Cluster, history: History) -> list[str]:
    """An oracle that takes a second broker for wrong."""
    return [f"{len(cluster.brokers)} brokers run"] if len(cluster.brokers) > 1 and history.states else []


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchers, "ALWAYS", (*watchers.ALWAYS, never))


def test_a_sound_world(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["repeat", "3", *SMALL]) == 0
    out = capsys.readouterr().out
    assert "seed 3: brokers=2" in out and "everything held" in out


def test_a_violation_shows_the_world_the_steps_and_the_command(
    broken: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["run", "--seeds", "3..4", "--workers", "1", *SMALL]) == 1
    out = capsys.readouterr().out
    assert out.count("never: 2 brokers run") == 2
    assert "kinds of steps and their weights" in out and "last events" in out
    assert "again: kwob sim repeat 3 --set" in out
    assert "2 worlds, 2 with a violation" in out


def test_json(broken: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["repeat", "3", "--json", *SMALL]) == 1
    value = json.loads(capsys.readouterr().out)
    assert value["seed"] == 3 and value["world"]["brokers"] == "2" and value["broken"] == ["never: 2 brokers run"]


class Ending(Play):
    """Who is killed because the world ends has things to say."""

    async def run(self) -> None:
        try:
            await super().run()
        finally:
            self.cluster.events.append((0.0, "info", {"event": ev.CONTROLLER_STOPPED}))


def test_the_last_events_are_those_before_the_end(broken: None) -> None:
    ended = play(draw_plan(3, KINDS, [change.removeprefix("--set=") for change in SMALL]), course=Ending)
    assert ended.broken and ended.last_events
    assert not [line for line in ended.last_events if ev.CONTROLLER_STOPPED in line]


@pytest.mark.long
def test_shrinking(broken: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert command.main(["shrink", "3", "--plays", "20", "--json", *SMALL]) == 1
    value = json.loads(capsys.readouterr().out)
    assert value["steps"] == [] and "--only none" in value["command"]
    assert value["plays"] <= 20
    monkeypatch.setattr(watchers, "ALWAYS", watchers.ALWAYS[:-1])
    assert command.main(["shrink", "3", *SMALL]) == 0
    assert "does not fail" in capsys.readouterr().out


def test_usage() -> None:
    for line in ("run --seeds 9..3", "run --seeds x", "repeat", "nothing", "repeat 1 --only x", "run --workers 0"):
        with pytest.raises(SystemExit) as ended:
            command.main(line.split())
        assert ended.value.code == 2
    assert command.main(["repeat", "1", "--set", "brokers=none"]) == 2
    assert command.main(["run", "--minutes", "1", "--master", "local[1]"]) == 2


def test_one_seed_is_one_run() -> None:
    first, second = play_seed(11), play_seed(11)
    assert not first.broken, first.broken
    assert (first.taken, first.virtual_s, first.records, first.reads, first.requests) == (
        second.taken,
        second.virtual_s,
        second.records,
        second.reads,
        second.requests,
    )


@pytest.mark.long
def test_processes_play_each_seed_once() -> None:
    changes = [change.removeprefix("--set=") for change in SMALL]
    outcomes = list(play_in_processes(range(5), workers=2, changes=changes))
    assert sorted(outcome.plan.seed for outcome in outcomes) == [0, 1, 2, 3, 4]
    assert not [outcome.broken for outcome in outcomes if outcome.broken]


@pytest.mark.parametrize(
    ("end", "code", "why"), [(KeyboardInterrupt(), 130, "ended by Ctrl-C"), (WorkerLost("no memory"), 1, "no memory")]
)
@pytest.mark.parametrize("is_json", [False, True])
def test_a_run_that_ends_early_tells_what_was_played(
    end: BaseException,
    code: int,
    why: str,
    is_json: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def some(*_: object, **__: object) -> Iterator[Outcome]:
        yield Outcome(plan=draw_plan(3, KINDS), virtual_s=7.0, records=5)
        raise end

    monkeypatch.setattr(command, "play_in_processes", some)
    assert command.main(["run", *(["--json"] if is_json else [])]) == code
    told = capsys.readouterr()
    assert (json.loads(told.out)["seeds"] == 1) if is_json else ("1 worlds, 0 with a violation" in told.out)
    assert told.err == f"kwob sim run: {why}; what was played by then is told\n"


@pytest.mark.slow
def test_spark_plays_each_seed_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["run", "--seeds", "0..15", "--master", "local[2]", "--json", *SMALL]) == 0
    assert json.loads(capsys.readouterr().out)["seeds"] == 16


@pytest.mark.long
def test_a_world_that_was_written_down(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["repeat", "3", "--json", *SMALL]) == 0
    first = json.loads(capsys.readouterr().out)
    file = tmp_path / "world.json"
    file.write_text(json.dumps([{**first, "seed": 4}, {**first, "steps": first["steps"][1:]}]))
    assert command.main(["repeat", "3", "--json", "--plan", str(file)]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["world"] == first["world"] and again["steps"] == first["steps"][1:]
    assert again["command"] == f"kwob sim repeat 3 --plan {file}"
    assert command.main(["repeat", "3", "--json", "--plan", str(file), "--only", "none", "--set", "racks=2"]) == 0
    part = json.loads(capsys.readouterr().out)
    assert part["command"] == f"kwob sim repeat 3 --plan {file} --only none --set racks=2"
    assert command.main(["repeat", "5", "--plan", str(file)]) == 2
    assert "has no plan of seed 5" in capsys.readouterr().err
    file.write_text("{")
    assert command.main(["repeat", "3", "--plan", str(file)]) == 2
    assert "is no plan" in capsys.readouterr().err
