"""`kwob scenario`: what a file may say, what each part becomes, in which order it is played, and how it is judged."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel

from controller.local import cluster, cluster_file
from controller.local.fault_file import edit_faults, read_faults
from controller.local.plan import plan_cluster
from controller.local.scenario import command
from controller.local.scenario.commands import Commands, Ended
from controller.local.scenario.file import ClusterPart, Expect, LoadPart, TopicPart, parse
from controller.local.scenario.play import Played, Player, judge_loads
from controller.wire.fault_rows import FAULT_FILE, FaultError, Kill, Stop

DOCUMENTED = Path(__file__).resolve().parents[3] / "docs" / "scenarios.md"
WHOLE = """
cluster: {brokers: 2, controllers: 2, racks: "a, b", settings: {auto.create.topics.enable: false}}
topics:
  - {topic: orders, partitions: 2, replication_factor: 2, configs: {min.insync.replicas: 1}}
load:
  - {topic: orders, rate: 50, at: 1s, for: 4s, acks: 1}
  - {topic: [orders, other], groups: 0}
faults:
  - {at: 2s, for: 3s, fault: kill, rack: b}
steps:
  - {at: 6s, do: kill_controller, controller: active}
  - {do: stop_broker, broker: 2}
  - {do: wait, until: "leader,no-moves", timeout: 2m}
  - {do: check}
  - {do: run, command: kwob topics --delete --topic 'two words'}
expect: {missing: 0, pause: 1500ms}
"""


def test_each_part_is_a_command_that_one_could_type() -> None:
    scenario = parse(WHOLE, "f.yaml")
    assert scenario.cluster is not None
    assert " ".join(scenario.cluster.words()) == (
        "up --brokers 2 --controllers 2 --log-dirs 1 --bootstrap-port 9092 --zookeeper-port 2181 --racks a,b "
        "--override auto.create.topics.enable=false"
    )
    assert " ".join(scenario.topics[0].words()) == (
        "topics --create --if-not-exists --topic orders --partitions 2 --replication-factor 2 "
        "--config min.insync.replicas=1"
    )
    first, second = (" ".join(load.words()) for load in scenario.load)
    assert first.startswith("load --topic orders --rate 50.0 ") and first.endswith("--acks 1 --producers 1 "
        "--groups 1 --consumers 1 --json --duration 4000ms")  # fmt: skip
    assert "--topic orders,other" in second and "--groups 0" in second and second.endswith("--duration 168h")
    assert [step.words() for step in scenario.steps] == [
        ["controller", "kill", "active"],
        ["broker", "stop", "2"],
        ["wait", "--until", "leader,no-moves", "--timeout", "120000ms"],
        ["check", "--timeout", "15000ms"],
        ["topics", "--delete", "--topic", "two words"],
    ]
    assert scenario.length_ms == 6000 and len(scenario.faults.steps) == 1


REFUSED = [
    ("an unknown part", "loads: []", "line 1: 'loads' is not known; there are faults, end, cluster, topics, load"),
    (
        "an unknown column",
        "topics:\n  - topic: a\n  - {topic: b, replicas: 3}",
        "line 3: topics 2 replicas: not known; there are topic, partitions",
    ),
    (
        "no such step",
        "steps:\n  - {do: explode}",
        "line 2: steps 1: do: 'explode' is not known; there are kill_broker, stop_broker, start_broker",
    ),
    (
        "a step of nothing",
        "steps:\n  - {at: 1s}",
        "line 2: steps 1: do: is missing; there are kill_broker",
    ),
    (
        "a column of no step",
        "steps:\n  - {do: kill_controller, controller: 901, lasts: 5s}",
        "line 2: steps 1 lasts: not known; there are at, do, controller, for",
    ),
    (
        "a column of no load",
        "load: [{topic: t, foo: 1}]",
        "load 1 foo: not known; there are topic, at, for, rate",
    ),
    (
        "what nobody expects",
        "expect: {foo: 1}",
        "line 1: expect foo: not known; there are missing, pause, ",
    ),
    ("no topic", "topics: [{partitions: 1}]", "line 1: topics 1 topic: is missing"),
    ("no list", "topics: a", "line 1: topics: expected a list, not 'a'"),
    ("no mapping", "cluster: true", "line 1: cluster: expected a mapping, not True"),
    ("no settings", "cluster: {settings: a}", "line 1: cluster settings: expected a mapping, not 'a'"),
    (
        "fewer than none",
        "expect: {missing: -1}",
        "expect missing: should be greater than or equal to 0 (given: -1)",
    ),
    (
        "a command of no words",
        "steps: [{do: run, command: ' '}]",
        "steps 1 command: a command of kwob is expected",
    ),
    ("a wrong time", "steps:\n  - {do: wait, until: leader, at: soon}", "'soon' is no time"),
    ("a wrong condition", "steps:\n  - {do: wait, until: peace}", "line 2: steps 1"),
    ("a wrong number", "cluster:\n  brokers: 0", "line 2: cluster brokers: should be greater than or equal to 1"),
    ("a wrong fault", "topics: []\nfaults:\n  - {fault: melt}", "line 3, fault 1: fault:"),
    ("an open quote", 'steps:\n  - {do: run, command: "topics \'x"}', "line 2: steps 1 command: No closing quotation"),
    ("a load of no length", "load:\n  - {topic: t}", "line 2: a load begins at 0ms and ends at once"),
    ("a pause that loads do not tell", "expect:\n  pause: 900ms", "expect pause: should be greater than or"),
    ("no YAML", "a: [", "line 1: not YAML"),
    (
        "a key twice",
        "topics:\n  - {topic: a,\n     partitions: 2, partitions: 3}",
        "line 3: not YAML: 'partitions' is there",
    ),
    (
        "no date",
        "topics:\n  - {topic: a}\n  - {topic: 2026-13-45}",
        "line 3: month must be in 1..12; text may stand in",
    ),
    ("no date in a circle", "topics: &a [*a, 2026-13-45]", "line 1: month must be in 1..12"),
    ("no number of thousands of digits", f"cluster:\n  brokers: {'9' * 5000}", "line 2: Exceeds the limit"),
    ("a list for a name", "topics:\n  - {[a]: 1}", "line 2: not YAML: found unhashable key"),
    ("a tag of Python", "topics: !!python/x y", "line 1: not YAML: could not determine a constructor"),
    ("a time beyond all numbers", f"load:\n  - {{topic: a, for: {'9' * 400}}}", "is more than 7 days"),
    (
        "a size with a unit",
        "load:\n  - {topic: t, for: 5s, size: 10kB}",
        "line 2: load 1 size: '10kB': expected bytes",
    ),
    ("a rate without an end", "load:\n  - {topic: t, for: 5s, rate: .inf}", "load 1 rate: should be less than 1"),
    (
        "too many threads",
        "load:\n  - {topic: t, for: 5s, groups: 65}",
        "load 1 groups: should be less than or eq",
    ),
]


@pytest.mark.parametrize(("text", "said"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_what_is_wrong_is_refused_with_its_line(text: str, said: str) -> None:
    with pytest.raises(FaultError) as refused:
        parse(text, "f.yaml")
    assert said in str(refused.value) and str(refused.value).startswith("f.yaml")


#: What names nobody of a cluster of brokers 1, 2, 3 in racks a, b, a and of controllers 901, 902.
NOBODY = [
    (
        "steps: [{do: check}, {do: kill_broker, broker: 4}]",
        "line 2: steps 2: no broker 4 in this cluster; there are 1 to 3",
    ),
    ("steps: [{do: start_broker, broker: 0}]", "line 2: steps 1: no broker 0 in this cluster; there are 1 to 3"),
    (
        "steps: [{do: stop_controller, controller: 1}]",
        "steps 1: no controller 1 in this cluster; there are 901 to 902, and `active`",
    ),
    (
        "steps: [{do: stop_controller, controller: 903}]",
        "steps 1: no controller 903 in this cluster; there are 901 to 902, ",
    ),
    ("faults: [{at: 5s, fault: kill, rack: c, for: 1s}]", "line 2, fault 1: no broker has rack 'c'; there are a, b"),
    (
        "faults: [{at: 5s, fault: kill, for: 1s},\n  {fault: stop, broker: 7, for: 1s}]",
        "line 3, fault 2: no broker 7 in this",
    ),
    (
        "faults: [{fault: cut_link, broker: 1, peer: 9, for: 1s}]",
        "fault 1: no broker 9 in this cluster; there are 1, 2, 3",
    ),
    ("faults: [{fault: kill, broker: 1, rack: b, for: 1s}]", "fault 1: none of the brokers 1 is in rack 'b'"),
]
SOMEBODY = [
    "steps: [{do: kill_broker, broker: 3}, {do: kill_controller, controller: 902}]",
    "steps: [{do: stop_controller, controller: active}]",
    "faults: [{fault: kill, rack: b, for: 1s}, {fault: fail_log_dir, broker: 1, log_dir: d, for: 1s}]",
]
OWN = "cluster: {brokers: 3, controllers: 2, racks: [a, b]}\n"


@pytest.mark.parametrize(("rest", "said"), NOBODY, ids=[row[1] for row in NOBODY])
def test_who_is_not_in_a_cluster_of_its_own_is_refused_before_that_starts(
    rest: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "f.yaml"
    file.write_text(OWN + rest)
    assert command.main([str(file), "--check-only"]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"kwob scenario: {file}, ") and said in err


@pytest.mark.parametrize("rest", SOMEBODY)
def test_who_is_in_it_is_not(rest: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "f.yaml"
    file.write_text(OWN + rest)
    assert command.main([str(file), "--check-only"]) == 0, capsys.readouterr().err
    file.write_text(rest.replace("b,", "zz,"))  # of a cluster that runs nothing is known yet
    assert command.main([str(file), "--check-only"]) == 0


#: What a cluster cannot have: its part of the file, and what is said.
IMPOSSIBLE = [
    ("cluster:\n  settings:\n    foo.bar: 1", "line 3: cluster unknown setting foo.bar (value '1'): did you mean"),
    ("cluster:\n  settings: {replica.lag.time.max.ms: soon}", "line 2: cluster setting replica.lag.time.max.ms: value"),
    ("cluster:\n  settings:\n    broker.id: 7", "line 3: cluster broker.id is not for settings: --brokers N gives"),
    ("cluster: {brokers: 3, bootstrap_port: 2180}", "line 1: cluster: port 2181 is for broker 2 and ZooKeeper"),
    ("cluster: {brokers: 2}\ntopics:\n  - {topic: a}\n  - {topic: b, replication_factor: 3}", "line 4: topics 2 rep"),
    ("cluster: {}\ntopics:\n  - {topic: a b}", "line 3: topics 1: Topic name is invalid: 'a b' contains one or more"),
    ("cluster: {}\ntopics:\n  - {topic: a, configs: {foo: 1}}", "line 3: topics 1: Unknown topic config name: foo"),
]


@pytest.mark.parametrize(("text", "said"), IMPOSSIBLE, ids=[row[1] for row in IMPOSSIBLE])
def test_what_its_own_cluster_cannot_have_is_refused_before_that_starts(
    text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "f.yaml"
    file.write_text(text)
    assert command.main([str(file), "--check-only"]) == 2
    assert capsys.readouterr().err.startswith(f"kwob scenario: {file}, {said}")


def test_why_a_tool_failed_is_said_and_not_who_logged_it(tmp_path: Path) -> None:
    code = "import sys; sys.exit('ERROR too few brokers\\n (org.apache.kafka.tools.TopicCommand)')"

    async def ended() -> Ended:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(sys.executable, "-S", "-c", code, stdout=pipe, stderr=pipe)
        return await Commands(tmp_path).end_of(process)

    assert asyncio.run(ended()).last == "ERROR too few brokers"


def test_a_file_that_is_no_text_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "f.yaml"
    file.write_bytes(b"end: \xff")
    assert command.main([str(file), "--check-only"]) == 2
    assert capsys.readouterr().err == f"kwob scenario: {file} is no text in UTF-8: byte 5 is 0xff\n"


def test_a_file_for_faults_alone_points_to_this_command(tmp_path: Path) -> None:
    from controller.wire import fault_scenario

    with pytest.raises(FaultError, match="kwob scenario plays it"):
        fault_scenario.parse("faults: []\nload: []")


def test_the_documented_file_can_be_played_and_its_tables_are_whole() -> None:
    page = DOCUMENTED.read_text()
    (example,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    scenario = parse(example, "example")
    assert scenario.load and scenario.steps and scenario.faults.steps and scenario.length_ms == 15_000
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", page, re.MULTILINE))
    parts: dict[str, type[BaseModel]] = {
        "cluster": ClusterPart,
        "topics": TopicPart,
        "load": LoadPart,
        "expect": Expect,
    }
    for part, model in parts.items():
        columns = [field.alias or name for name, field in model.model_fields.items()]
        assert sorted(re.findall(r"`([\w]+)`", rows[part])) == sorted(columns), part
    for kind in ("wait", "check", "run", "kill_broker", "start_controller"):
        assert re.search(rf"^\|.*`{kind}`", page, re.MULTILINE), kind


# -- playing -----------------------------------------------------------------------------------------------------------


class Scripted(Commands):
    """Commands that are not run: their words are kept, and some end as the test says."""

    def __init__(self, data: Path, ends: dict[str, Ended]) -> None:
        super().__init__(data)
        self.typed: list[str] = []
        self._ends = ends

    async def run(self, words: Sequence[str]) -> Ended:
        self.typed.append(" ".join(words))
        return self._ends.get(words[0], Ended(code=0, out="", last="done"))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    plan = plan_cluster(data=tmp_path, brokers=2, controllers=2, racks=["a"], ports=[1, 2], zookeeper_port=4)
    cluster_file.write_cluster(tmp_path, cluster.Cluster(plan).row())
    return tmp_path


def played(data: Path, text: str, **ends: Ended) -> tuple[Played, list[str]]:
    commands = Scripted(data, ends)
    player = Player(parse(text, "f.yaml"), data, lambda at_s, line: None, commands)
    return asyncio.run(player.play()), commands.typed


def test_what_a_cluster_says_is_read_to_its_end(tmp_path: Path) -> None:
    """An empty line is none: whoever is not read from stands still once the pipe is full."""

    class Printing(Commands):
        async def start(self, words: Sequence[str]) -> asyncio.subprocess.Process:
            piped: dict[str, Any] = {"stdout": asyncio.subprocess.PIPE, "stderr": asyncio.subprocess.PIPE}
            return await asyncio.create_subprocess_exec(*words, **piped)

    said: list[str] = []

    async def up() -> None:
        lines = "printf 'begun\n\nready; now\n\nbroker 1 ended\n'; exec sleep 60"
        async with asyncio.timeout(20), Printing(tmp_path).up(["sh", "-c", lines], said.append):
            while not said:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    asyncio.run(up())
    assert said == ["broker 1 ended"]


STATUS = Ended(code=0, out=json.dumps({"controllers": [{"id": 901}, {"id": 902, "active": True}]}), last="")


def test_steps_follow_each_other_and_the_active_controller_is_found_when_its_turn_comes(data: Path) -> None:
    text = """
topics: [{topic: orders}]
steps:
  - {do: kill_controller, controller: active, for: 1ms}
  - {do: start_broker, broker: 2}
"""
    outcome, typed = played(data, text, status=STATUS)
    assert typed[0].startswith("topics --create") and typed[1] == "wait --until full-isr --topic orders"
    assert typed[2:4] == ["status --json", "controller kill 902"]
    assert sorted(typed[4:6]) == ["broker start 2", "controller start 902"]
    assert typed[6:] == ["check --timeout 30s"]
    assert outcome.holds and len(outcome.judged) == 4


def test_what_fails_is_told_and_the_rest_is_played(data: Path) -> None:
    text = "steps:\n  - {do: wait, until: leader}\n  - {do: stop_broker, broker: 1}"
    wrong = Ended(code=1, out="ok   a: fine\nNOT  b: 2 partitions\n", last="NOT  b: 2 partitions")
    outcome, typed = played(data, text, wait=Ended(code=1, out="", last="not within 60 s"), check=wrong)
    assert not outcome.holds and typed[-1] == "check --timeout 30s"
    assert [(each.holds, each.detail) for each in outcome.judged] == [
        (False, "not within 60 s"),
        (True, "done"),
        (False, "b: 2 partitions"),
    ]


@pytest.mark.parametrize("own_time", ["", ", for: 1ms"])
def test_a_load_is_interrupted_where_only_the_end_of_the_scenario_ends_it(data: Path, own_time: str) -> None:
    """One with a time of its own has it behind it, and may be reading back: an interrupt would cost its summary."""

    class Loading(Scripted):
        async def start(self, words: Sequence[str]) -> Any:
            return SimpleNamespace(send_signal=signals.append)

        async def end_of(self, process: Any) -> Ended:
            await asyncio.sleep(0.05)
            return Ended(code=0, out=json.dumps(load()), last="")

    signals: list[int] = []
    text = f"load: [{{topic: t{own_time}}}]\nsteps: [{{do: check}}]"
    player = Player(parse(text, "f.yaml"), data, lambda at_s, line: None, Loading(data, {}))
    assert asyncio.run(player.play()).holds
    assert signals == ([] if own_time else [signal.SIGINT])


def test_at_its_end_a_scenario_takes_its_own_faults_along_and_no_other(data: Path) -> None:
    """Also where it ends early."""
    edit_faults(data / FAULT_FILE, lambda present: (*present, Kill(broker=1, id="mine"), Stop(broker=2)))
    before = [row.id for row in read_faults(data / FAULT_FILE)]
    seen: list[list[str | None]] = []

    class Looking(Scripted):
        async def run(self, words: Sequence[str]) -> Ended:
            seen.append([row.id for row in read_faults(data / FAULT_FILE)])
            if words[0] == "broker":
                raise RuntimeError("the end")
            return await super().run(words)

    for step in ("{do: check}", "{do: start_broker, broker: 2}"):
        text = f"faults: [{{at: 0s, for: 1ms, fault: cut_link, broker: 2}}]\nsteps: [{step}]"
        player = Player(parse(text, "f.yaml"), data, lambda at_s, line: None, Looking(data, {}))
        with suppress(RuntimeError):
            asyncio.run(player.play())
        assert [row.id for row in read_faults(data / FAULT_FILE)] == before
    assert all(len(ids) == len(before) + 1 and ids[: len(before)] == before for ids in (seen[0], seen[-1]))


def test_a_log_dir_is_named_as_the_status_shows_it(data: Path) -> None:
    class Looking(Scripted):
        async def run(self, words: Sequence[str]) -> Ended:
            in_force.append((data / FAULT_FILE).read_text())
            return await super().run(words)

    in_force: list[str] = []
    text = "faults: [{fault: fail_log_dir, broker: 2, log_dir: broker-2/data, for: 1ms}]"
    player = Player(parse(text, "f.yaml"), data, lambda at_s, line: None, Looking(data, {}))
    assert asyncio.run(player.play()).holds
    assert f'"log_dir":"{data}/broker-2/data"' in in_force[0]


def test_a_fault_that_fits_no_broker_is_refused_before_anything_is_played(data: Path) -> None:
    with pytest.raises(FaultError, match="no broker 7"):
        played(data, "faults: [{fault: kill, broker: 7, for: 1s}]")


# -- judging -----------------------------------------------------------------------------------------------------------


def load(**more: Any) -> dict[str, Any]:
    pauses = [{"topic": "t", "partition": 1, "seconds": 2.5, "began_s": 3.0}]
    return {"missing": 0, "failed": 0, "acknowledged": 10, "pauses": pauses, "latency_ms": {"p99": 40.0},
            "not_checked": "", **more}  # fmt: skip


JUDGED = [
    ("nothing is missing", {}, [load(), load()], True),
    ("one of two loads misses one", {}, [load(), load(missing=1)], False),
    ("as many may be missing", {"missing": 1}, [load(missing=1)], True),
    ("with acks=0 nothing is promised", {}, [load(missing=None)], True),
    ("nothing could be read back", {}, [load(missing=None, not_checked="no broker")], False),
    ("a pause that is allowed", {"pause": "3s"}, [load()], True),
    ("a pause that is not", {"pause": "2s"}, [load(), load(pauses=[])], False),
    ("no pause at all", {"pause": "1s"}, [load(pauses=[])], True),
    ("quick enough", {"latency_p99": "40ms"}, [load()], True),
    ("one load is too slow", {"latency_p99": "40ms"}, [load(), load(latency_ms={"p99": 41.0})], False),
    ("producers gave up", {"failed": 2}, [load(failed=2), load(failed=1)], False),
    ("too little came through", {"acknowledged": 21}, [load(), load()], False),
    ("enough came through", {"acknowledged": 20}, [load(), load()], True),
    ("without load nothing is judged", {"acknowledged": 1}, [], True),
]


@pytest.mark.parametrize(("expect", "loads", "holds"), [row[1:] for row in JUDGED], ids=[row[0] for row in JUDGED])
def test_what_is_expected_of_loads(expect: dict[str, Any], loads: list[dict[str, Any]], holds: bool) -> None:
    assert all(each.holds for each in judge_loads(Expect.model_validate(expect), loads)) is holds


@pytest.mark.parametrize("missing", [[0], [0, 0], [0, None], [2, 0, None], [None]])
def test_what_is_missing_is_told_where_any_load_can_tell(missing: list[int | None]) -> None:
    """Also that nothing is."""
    [*told] = judge_loads(Expect(), [load(missing=number) for number in missing])
    counts = [number for number in missing if number is not None]
    assert [(each.detail, each.holds) for each in told] == ([(str(sum(counts)), not sum(counts))] if counts else [])


# -- the command -------------------------------------------------------------------------------------------------------


def test_a_folder_with_a_cluster_is_not_emptied_unasked(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = data.parent / "own.yaml"
    file.write_text("cluster: {brokers: 1}\n")
    assert command.main([str(file), "--data", str(data)]) == 1
    assert "--overwrite, or another --data" in capsys.readouterr().err
    assert (data / "cluster.json").exists()
    assert command.main([str(file), "--check-only"]) == 0
    assert command.main([str(data.parent / "nosuch.yaml")]) == 2
