"""What a scenario or a cluster file may not say, and where that is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.rehearse.scenario import Reassign, ScenarioError
from controller.rehearse.scenario_file import load
from controller.wire import cluster_file
from controller.wire.cluster_file import ClusterFileError
from tests.worlds.rehearsals import brokers, topic, write

CLUSTER: dict[str, Any] = {"brokers": brokers(3), "topics": {"t": topic([1, 2, 3], [2, 3, 1])}}


def event(**row: Any) -> dict[str, Any]:
    return {"events": [row]}


WRONG = [
    (
        "an unknown key at the top",
        {"evnts": []},
        r"scenario.yaml, line \d+: 'evnts' is not known; there are name, cluster",
    ),
    ("an unknown event", event(do="explode"), r"line \d+: do: 'explode' is not known; there are kill, stop"),
    ("an unknown column", event(do="kill", broker=1, bang=1), r"line \d+: bang: not known"),
    (
        "a broker that is not there",
        event(do="kill", broker=9),
        r"line \d+: broker: the cluster has no broker 9; it has 1, 2, 3",
    ),
    ("a rack that is not there", event(do="kill", rack="z"), r"rack: no broker is in rack 'z'; there are a, b, c"),
    ("nobody to kill", event(do="kill"), r"broker or rack: one of them is needed"),
    ("a time that is none", event(do="kill", broker=1, at="soon"), r"at: 'soon' is no time"),
    ("a negative time", event(do="kill", broker=1, at=-5), r"at: '-5' is no time"),
    (
        "an event after the end",
        {**event(do="kill", broker=1, at="2h"), "end": "1h"},
        r"at: 02:00:00 is not before the end of the rehearsal, 01:00:00",
    ),
    ("an end that is none", {"end": "later"}, r"end: 'later' is no time.*or `quiet`"),
    ("a size that is none", event(do="throttle", rate="fast"), r"rate: 'fast' is no size"),
    ("no whole byte a second", event(do="throttle", rate=0.5), r"rate: should be greater than or equal to 1"),
    (
        "a move under none",
        event(do="reassign", throttle="0.9B", partitions=[]),
        r"throttle: should be greater than or equal to 1",
    ),
    (
        "nor one that joins",
        event(do="add_broker", id=9, throttle=0.5),
        r"throttle: should be greater than or equal to 1",
    ),
    (
        "a throttle of a move that is none",
        event(do="add_broker", id=9, throttle="fast"),
        r"throttle: 'fast' is no size",
    ),
    ("a negative rate", event(do="rates", factor=-1), r"factor: should be greater than or equal to 0"),
    ("a topic that is not there", event(do="rates", factor=2, topics=["u"]), r"topics: the cluster has no topic 'u'"),
    ("a plan that is not there", event(do="reassign", file="p.json"), r"there is no file .*p.json"),
    ("no plan at all", event(do="reassign"), r"give either `file` or `partitions`"),
    (
        "a plan with a broker that is not there",
        event(do="reassign", partitions=[{"topic": "t", "partition": 0, "replicas": [1, 7]}]),
        r"line \d+: row 1 of partitions: t-0: the cluster has no broker 7; it has 1, 2, 3",
    ),
    (
        "a plan with a partition that is not there",
        event(do="reassign", partitions=[{"topic": "t", "partition": 5, "replicas": [1]}]),
        r"the cluster has no partition t-5",
    ),
    (
        "a plan that names a broker twice",
        event(do="reassign", partitions=[{"topic": "t", "partition": 0, "replicas": [1, 1]}]),
        r"replicas \[1, 1\] are empty or name one twice",
    ),
    ("a broker that is there already", event(do="add_broker", id=2), r"broker 2 is there already"),
    (
        "a fault that cannot be rehearsed",
        {"faults": [{"fault": "api"}]},
        r"line \d+: fault 'api' cannot be rehearsed: a rehearsal's clients .* are rates .*; those that can are kill",
    ),
    ("a fault without a kind", {"faults": [{"at": 5}]}, r"line \d+: `fault` is missing, its kind; there are kill"),
    ("a fault that is no text", {"faults": [{"fault": {"a": 1}}]}, r"fault \{'a': 1\} cannot be rehearsed"),
    (
        "a link of two brokers",
        {"faults": [{"fault": "slow_link", "broker": 1, "peer": 2}]},
        r"line \d+: fault 'slow_link': peer cannot be rehearsed: a rehearsal's link is that of a broker to all others",
    ),
    (
        "a fault's column that is not there",
        {"faults": [{"fault": "kill", "broker": 1, "bang": 1}]},
        r"fault 'kill': bang is not known; there are at, for, broker, rack",
    ),
    ("an event that says not what", event(at=5), r"line \d+: `do` is missing, what happens; there are kill, stop"),
    ("an event that is no mapping", {"events": ["kill"]}, r"line \d+: each of `events` must be a mapping"),
    ("an event with a line of its own", event(do="cancel", line=3), r"line \d+: line: not known"),
    ("a broker that is a truth", event(do="kill", broker=[True]), r"broker: expected a broker's id or a list of ids"),
    ("an empty list of brokers", event(do="kill", broker=[]), r"broker: expected a broker's id or a list of ids"),
    ("a broker beyond all ids", event(do="add_broker", id=2**31), r"id: should be less than or equal to 2147483000"),
    ("a curve without time", event(do="curve", factors=[1, 2], period=0), r"period: should be greater than or equal"),
    (
        "a pause of a partition that is not there",
        event(do="pause_replication", broker=1, topic="t", partition=2),
        r"partition: t has 2 partitions",
    ),
    (
        "a plan with replicas that are no list",
        event(do="reassign", partitions=[{"topic": "t", "partition": 0, "replicas": 5}]),
        r"line \d+: row 1 of partitions: expected topic \(a text\), partition \(its number\) and replicas",
    ),
    (
        "a plan with a negative partition",
        event(do="reassign", partitions=[{"topic": "t", "partition": -1, "replicas": [1]}]),
        r"line \d+: row 1 of partitions: expected topic",
    ),
    (
        "a session under KRaft",
        {"cluster": {**CLUSTER, "mode": "kraft"}, **event(do="expire_session", broker=1)},
        r"line \d+: do: expire_session: brokers of a KRaft cluster have no ZooKeeper session",
    ),
    (
        "a setting that is no number",
        {"settings": {"min.insync.replicas": "two"}},
        r"line \d+: setting min.insync.replicas: value 'two' is not allowed; allowed: a whole number from 1",
    ),
    (
        "a time that is no number",
        {"settings": {"log.retention.ms": "x"}},
        r"setting log.retention.ms: value 'x' is not",
    ),
    ("half an hour", {"settings": {"log.retention.hours": 1.5}}, r"log.retention.hours: value '1.5' is not allowed"),
    ("a lag that is no time", {"settings": {"replica.lag.time.max.ms": "x"}}, r"replica.lag.time.max.ms: value 'x'"),
    (
        "a lag shorter than a fetch",
        {"settings": {"replica.lag.time.max.ms": 100}},
        r"line \d+: .*replica.fetch.wait.max.ms must be at most replica.lag.time.max.ms",
    ),
    (
        "a setting that Kafka does not know",
        {"settings": {"min.insync.replica": 2}},
        r"line \d+: unknown setting min.insync.replica .*did you mean min.insync.replicas",
    ),
    (
        "a whole key of another kind",
        {"controllers": "many"},
        r"line \d+: controllers: expected a whole number, not 'many'",
    ),
    ("an end that is before the begin", {"end": 0}, r"line \d+: end: must be longer than 0"),
    (
        "a column of another event",
        event(do="kill", broker=1, throttle="5MB"),
        r"line \d+: throttle: not known; kill has do, at, broker, rack, for$",
    ),
    ("a slow broker that is as fast as ever", event(do="slow", broker=1), r"line \d+: link or disk: one of them"),
    ("events that are no list", {"events": {"do": "kill"}}, r"`events` must be a list"),
    (
        "nobody that is in both columns",
        event(do="kill", broker=[1, 3], rack="b"),
        r"line \d+: broker and rack: none of 1, 3 is in rack 'b'",
    ),
    ("a link from a rack's only broker to itself", event(do="cut_link", rack="a", peer=1), r"no link to itself"),
    (
        "a spread to a broker without a rack",
        event(do="add_broker", id=9, spread=True),
        r"line \d+: spread: partitions are spread over brokers that all have a rack, or none of them; without one is 9",
    ),
    (
        "a spread before a broker without a rack joins",
        {
            "events": [
                {"do": "add_broker", "id": 9, "rack": "a", "spread": True},
                {"do": "add_broker", "id": 8, "at": 5},
            ]
        },
        r"line \d+: spread: .*without one is 8",
    ),
    (
        "a spread in a cluster of few racks",
        {
            "cluster": {**CLUSTER, "brokers": [{"id": 1}, {"id": 2, "rack": "b"}, {"id": 3}]},
            **event(do="add_broker", id=9, spread=True, rack="c"),
        },
        r"line \d+: spread: .*without one are 1, 3",
    ),
    (
        "more than bytes are counted in",
        event(do="throttle", rate="9" * 400),
        r"rate: .* is more than 9223372036854775807",
    ),
    (
        "a disk that holds all",
        {"limits": {"disk": "10000000TB"}},
        r"limits.disk: '10000000TB' is more than 92233720368",
    ),
    ("rates beyond all numbers", event(do="rates", factor=1e308), r"factor: should be less than or equal to 1000000"),
    ("a curve beyond all numbers", event(do="curve", factors=[1, 1e308]), r"should be less than or equal to 1000000"),
    ("rates that are none", event(do="rates", factor=float("nan")), r"factor: should be a finite number"),
]

#: How a partition or a broker cannot be.
WRONG_FIGURES: list[tuple[dict[str, Any], str]] = [
    ({"bytes": 10**400}, r"bytes: should be less than or equal to 9223372036854775807"),
    ({"in_bytes_per_s": 1e308}, r"in_bytes_per_s: should be less than or equal to 9\.?22"),
    ({"out_bytes_per_s": float("inf")}, r"out_bytes_per_s: should be a finite number"),
    ({"link_bytes_per_s": float("inf")}, r"link_bytes_per_s: should be a finite number"),
    ({"disk_bytes_per_s": 0}, r"disk_bytes_per_s: should be greater than 0"),
    ({"log_dirs": [{"path": "/d", "capacity_bytes": 2**63}]}, r"capacity_bytes: should be less than or equal to 92233"),
]


@pytest.mark.parametrize(("figure", "message"), WRONG_FIGURES, ids=[next(iter(row[0])) for row in WRONG_FIGURES])
def test_figures_that_no_cluster_has_are_refused(figure: dict[str, Any], message: str, tmp_path: Path) -> None:
    of_partition = next(iter(figure)).partition("_")[0] in ("bytes", "in", "out")
    broker: dict[str, Any] = {"id": 1}
    partition: dict[str, Any] = {"replicas": [1]}
    (partition if of_partition else broker).update(figure)
    with pytest.raises(ClusterFileError, match=message):
        load(write(tmp_path, cluster={"brokers": [broker], "topics": {"t": {"partitions": [partition]}}}))


@pytest.mark.parametrize(("what", "rest", "message"), WRONG, ids=[row[0] for row in WRONG])
def test_what_cannot_be_is_refused(what: str, rest: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=message):
        load(write(tmp_path, **{"cluster": CLUSTER, **rest}))


def test_a_scenario_without_a_cluster_and_text_that_is_no_yaml(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text("events: []\n")
    with pytest.raises(ScenarioError, match="`cluster` is missing"):
        load(path)
    path.write_text("events: [\n")
    with pytest.raises(ScenarioError, match=r"s.yaml, line \d+: not YAML"):
        load(path)
    path.write_text("cluster: c\nevents:\n- {do: lose, broker: 1,\n   broker: 2}\n")
    with pytest.raises(ScenarioError, match=r"s.yaml, line 4: not YAML: 'broker' is there twice"):
        load(path)
    with pytest.raises(ScenarioError, match="there is no file"):
        load(tmp_path / "none.yaml")


@pytest.mark.parametrize("acks", ["all", "1", 1])
def test_acks_is_all_or_a_one(acks: Any, tmp_path: Path) -> None:
    assert load(write(tmp_path, cluster=CLUSTER, acks=acks)).acks == str(acks)


@pytest.mark.parametrize("dirs", [["any"], ["any"] * 4, "any", None, ["any", 1, "any"]], ids=str)
def test_a_plan_names_a_dir_for_each_replica_or_none_at_all(dirs: Any, tmp_path: Path) -> None:
    row = {"topic": "t", "partition": 1, "replicas": [3, 1, 2], "log_dirs": dirs}
    with pytest.raises(ScenarioError, match="t-1: log_dirs must be a list of 3 texts, one for each of replicas"):
        load(write(tmp_path, cluster=CLUSTER, events=[{"do": "reassign", "partitions": [row]}]))


def test_a_plan_names_dirs_that_its_brokers_have(tmp_path: Path) -> None:
    """Where the cluster file says which these are: brokers refuse a plan with others when it has begun."""
    dirs_of = {n: [{"path": f"/{n}{name}"} for name in "ab"[:n]] for n in range(4)}
    cluster = {**CLUSTER, "brokers": [{"id": n, "log_dirs": dirs} for n, dirs in dirs_of.items()]}

    def planned(*dirs: str) -> list[dict[str, Any]]:
        return [
            {"do": "add_broker", "id": 7},
            {"do": "reassign", "partitions": [
                {"topic": "t", "partition": 0, "replicas": [1, 2]},
                {"topic": "t", "partition": 1, "replicas": [0, 7, 1, 2], "log_dirs": dirs},
            ]},
        ]  # fmt: skip

    for dirs in (("/x", "/y", "/1a", "/2b"), ("any",) * 4, ("any", "/", "any", "/2a")):
        load(write(tmp_path, cluster=cluster, events=planned(*dirs)))
    for dirs, message in (
        (("any", "any", "/1b", "/2a"), "broker 1 has no directory '/1b'; there are any, /1a"),
        (("any", "any", "/1a", "/1a"), "broker 2 has no directory '/1a'; there are any, /2a, /2b"),
    ):
        with pytest.raises(ScenarioError, match=f"row 2 of partitions: t-1: log_dirs: {message}"):
            load(write(tmp_path, cluster=cluster, events=planned(*dirs)))


def test_days_are_times(tmp_path: Path) -> None:
    assert load(write(tmp_path, cluster=CLUSTER, end="1d")).end_ms == 86_400_000


def test_a_plan_and_a_cluster_beside_the_scenario(tmp_path: Path) -> None:
    plan = {
        "version": 1,
        "partitions": [{"topic": "t", "partition": 1, "replicas": [3, 1, 2], "log_dirs": ["any"] * 3}],
    }
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    shape = cluster_file.shape_of(CLUSTER, "here")
    (tmp_path / "cluster.yaml").write_text(cluster_file.dump(shape))
    path = tmp_path / "s.yaml"
    path.write_text("cluster: cluster.yaml\nevents:\n  - {do: reassign, file: plan.json}\n")
    scenario = load(path)
    (found,) = scenario.events
    assert isinstance(found, Reassign)
    assert found.partitions[0]["replicas"] == [3, 1, 2]
    assert scenario.cluster == shape


WRONG_PLANS = [
    ("", r"line 3: file: plan.json, line 1: not JSON"),
    ("[1]", r"line 3: file: plan.json has no list `partitions` of objects"),
    ("a", r"plan.json, line 4: t-0 is there twice, first with replicas \[2, 1, 3\]"),
    ("b", r"plan.json, line 3: t-0: the cluster has no broker 9; it has 1, 2, 3"),
    ("c", r"plan.json, line 3: the cluster has no partition t-2; there are 0 to 1"),
    ("d", r"plan.json, line 3: the cluster has no partition u-0; there are t"),
    ('{"version": 2, "partitions": []}', r"line 3: file: plan.json is of version 2; expected version 1"),
    ('{"partitions": []}', r"line 3: file: plan.json: partitions: is empty; expected at least one to be moved"),
    ("e", r"plan.json, line 3: t-0: replicas \[1, 1\] are empty or name one twice"),
]
ROWS = {
    "a": [("t", 0, [2, 1, 3]), ("t", 0, [1, 2, 3])],
    "b": [("t", 0, [9, 1, 2])],
    "c": [("t", 2, [1, 2, 3])],
    "d": [("u", 0, [1, 2, 3])],
    "e": [("t", 0, [1, 1])],
}


@pytest.mark.parametrize(("what", "message"), WRONG_PLANS, ids=[row[1] for row in WRONG_PLANS])
def test_what_is_wrong_with_a_plan_has_its_line(what: str, message: str, tmp_path: Path) -> None:
    rows = [json.dumps({"topic": t, "partition": p, "replicas": ids}) for t, p, ids in ROWS.get(what, ())]
    text = '{"version": 1,\n"partitions": [\n' + ",\n".join(rows) + "]}" if rows else what
    (tmp_path / "plan.json").write_text(text)
    path = write(tmp_path, cluster=CLUSTER)
    (tmp_path / "cluster.yaml").write_text(cluster_file.dump(cluster_file.shape_of(CLUSTER, "here")))
    path.write_text("cluster: cluster.yaml\nevents:\n- {do: reassign, file: plan.json}\n")
    with pytest.raises(ScenarioError, match=message):
        load(path)


def test_what_is_no_text_is_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="is a folder; expected a file"):
        load(tmp_path)
    path = tmp_path / "s.yaml"
    path.write_bytes(b"ab\xff")
    with pytest.raises(ScenarioError, match="is no text in UTF-8: byte 2 is 0xff"):
        load(path)
    path.write_text("")
    with pytest.raises(ScenarioError, match=r"s.yaml, line 1: expected a mapping; there are name, cluster"):
        load(path)


def test_a_month_is_the_most(tmp_path: Path) -> None:
    assert load(write(tmp_path, cluster=CLUSTER, end="31d")).end_ms == 31 * 86_400_000
    with pytest.raises(ScenarioError, match="end: '32d' is more than 31 days, or `quiet`"):
        load(write(tmp_path, cluster=CLUSTER, end="32d"))


WRONG_CLUSTERS = [
    ({"topics": {}}, "brokers: is missing"),
    ({"brokers": []}, "brokers: expected at least 1, there are 0"),
    ({"brokers": brokers(2) + brokers(1)}, "broker 1 is there twice"),
    ({"brokers": brokers(1), "topics": {"t": topic([1, 2])}}, r"t-0: no broker \[2\] among brokers 1"),
    ({"brokers": brokers(1), "topics": {"t": topic([1, 1])}}, r"replicas \[1, 1\] names a broker twice"),
    ({"brokers": brokers(2), "topics": {"t": topic([1, 2], isr=[2, 2])}}, r"isr \[2, 2\] names a broker twice"),
    *(
        ({"brokers": brokers(2), "topics": {"t": topic([1, 2], **{name: [2, 2]})}}, f"{name} .* names a broker twice")
        for name in ("adding_replicas", "removing_replicas")
    ),
    ({"brokers": brokers(2), "topics": {"t": topic([1], isr=[2])}}, r"isr has \[2\], not among replicas \[1\]"),
    ({"brokers": brokers(2), "topics": {"t": topic([1, 2], isr=[1], leader=2)}}, r"leader 2 is not in its ISR \[1\]"),
    ({"brokers": brokers(1), "topics": {"t": topic([1], leader_epoch=2**40)}}, "leader epoch 1099511627776 is near"),
    ({"brokers": brokers(2), "topics": {"t": topic([1, 2], adding_replicas=[1, 2])}}, "all replicas would be added"),
    (
        {"brokers": brokers(2), "topics": {"t": topic([1, 2], removing_replicas=[2, 1])}},
        "all replicas would be removed",
    ),
    (
        {"brokers": brokers(2), "topics": {"t": topic([1, 2], adding_replicas=[1], removing_replicas=[1])}},
        r"\[1\] would be added and removed",
    ),
    ({"brokers": brokers(1), "version": 9}, "version 9; this kwob reads version 1"),
    ({"brokers": brokers(1), "colour": 1}, "colour: not known"),
    ([], "expected a mapping"),
]


@pytest.mark.parametrize(("document", "message"), WRONG_CLUSTERS, ids=[row[1] for row in WRONG_CLUSTERS])
def test_a_cluster_that_cannot_be_is_refused(document: Any, message: str) -> None:
    with pytest.raises(ClusterFileError, match=message):
        cluster_file.shape_of(document, "cluster.yaml")


def test_a_partition_may_be_written_short() -> None:
    shape = cluster_file.parse("brokers: [{id: 1}, {id: 2}]\ntopics: {t: {partitions: [[2, 1]]}}\n")
    (only,) = shape.topics["t"].partitions
    assert (only.replicas, only.in_sync, only.leader_id) == ((2, 1), (2, 1), 2)


@given(st.text(max_size=200))
def test_any_text_is_a_cluster_or_refused_in_words(text: str) -> None:
    try:
        cluster_file.parse(text)
    except ClusterFileError as error:
        assert "cluster.yaml" in str(error)


WRONG_LINES = [
    ("brokers: 5", 1, "brokers: expected a list, not 5"),
    ("brokers: []", 1, "brokers: expected at least 1, there are 0"),
    ("brokers:\n- {id: 1}\n- {id: x}", 3, "brokers.1.id: expected a whole number, not 'x'"),
    ("brokers:\n- {id: 1}\n- {id: 1}", 3, "broker 1 is there twice"),
    ("brokers:\n- {id: 1,\n   rack: 2026-13-45}", 3, "month must be in 1..12; text may stand in quotes"),
    ("brokers:\n- {id: 1,\n   rack: a,\n   rack: b}", 4, "not YAML: 'rack' is there twice"),
    (
        "brokers:\n- {id: 1}\ntopics:\n  t:\n    partitions:\n    - [1]\n    - [1, 7]",
        7,
        r"t-1: no broker \[7\] among brokers 1",
    ),
    ("brokers:\n- {id: 1}\ntopics:\n  t:\n    partitions: [[1]]\n    confgs: {}", 6, "topics.t.confgs: not known"),
    (
        "brokers:\n- {id: 1}\ntopics:\n  t:\n    partitions: [[1]]\n    configs:\n      retention.ms: soon",
        7,
        "topics.t.configs.retention.ms: expected a whole number, not 'soon'",
    ),
    (
        "brokers:\n- {id: 1}\ntopics:\n  t:\n    partitions: [[1]]\n    configs:\n      cleanup.policy: gone",
        7,
        "topics.t.configs.cleanup.policy: Invalid value gone .* must be one of: compact, delete",
    ),
    (
        "brokers:\n- {id: 1}\ntopics:\n  t: {partitions: [[1]]}\n  a/b: {partitions: [[1]]}",
        5,
        "topics: Topic name is invalid: 'a/b' contains",
    ),
    (
        "brokers:\n- {id: 1}\nconfigs:\n  min.insync.replicas: two",
        4,
        "configs.min.insync.replicas: expected a whole number, not 'two'",
    ),
    ("brokers:\n- {id: 1}\n- {id: 2,\n   link_bytes_per_s: -5}", 4, "link_bytes_per_s: should be greater than 0"),
    (
        "brokers:\n- {id: 1}\n- id: 2\n  disk_bytes_per_s: 5\n"
        "topics: {t: {partitions: [{replicas: [1, 2], in_bytes_per_s: 9}]}}",
        4,
        r"broker 2: .* are written by the rates of its partitions, more than its disk holds",
    ),
]


@pytest.mark.parametrize("is_beside", [True, False], ids=["beside", "inline"])
@pytest.mark.parametrize(("text", "line", "message"), WRONG_LINES, ids=[row[2] for row in WRONG_LINES])
def test_what_is_wrong_with_a_cluster_has_a_line(
    text: str, line: int, message: str, is_beside: bool, tmp_path: Path
) -> None:
    path = tmp_path / "s.yaml"
    if is_beside:
        (tmp_path / "c.yaml").write_text(text)
        path.write_text("cluster: c.yaml\n")
    else:
        path.write_text("cluster:\n" + "\n".join(f"  {row}" for row in text.splitlines()))
    where = f"c.yaml, line {line}: " if is_beside else f"s.yaml, line {line + 1}: "
    with pytest.raises((ScenarioError, ClusterFileError), match=where + ".*" + message):
        load(path)


def test_settings_may_be_numbers_and_truths() -> None:
    text = (
        "brokers: [{id: 1}]\ntopics: {t: {partitions: [[1]], configs: {min.insync.replicas: 2, preallocate: true}}}\n"
    )
    assert cluster_file.parse(text).topics["t"].configs == {"min.insync.replicas": "2", "preallocate": "true"}
    with pytest.raises(ClusterFileError, match=r"line 1: brokers.0.configs.a: expected a text"):
        cluster_file.parse("brokers: [{id: 1, configs: {a: [1]}}]\n")


@pytest.mark.parametrize(
    "row",
    [
        *({"topic": name, "partition": 0, "replicas": [1]} for name in (5, None, ["t"])),
        *({"topic": "t", "partition": number, "replicas": [1]} for number in ("0", True, 0.0, None)),
        *({"topic": "t", "partition": 0, "replicas": ids} for ids in ([1, "2"], ["1", 2], [1, True], "1", None)),
    ],
    ids=str,
)
def test_a_row_of_a_plan_has_a_name_a_number_and_numbers(row: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"line \d+: row 1 of partitions: expected topic \(a text\)"):
        load(write(tmp_path, cluster=CLUSTER, **event(do="reassign", partitions=[row])))


@pytest.mark.parametrize("ids", [[1, "2"], [True, 1], "1", [[1]], 1.0], ids=str)
def test_brokers_are_numbers(ids: Any, tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="broker: expected a broker's id or a list of ids"):
        load(write(tmp_path, cluster=CLUSTER, **event(do="kill", broker=ids)))


@pytest.mark.parametrize(
    ("of_cluster", "of_scenario", "is_right"),
    [
        ({}, {"replica.lag.time.max.ms": "400", "replica.fetch.wait.max.ms": "300"}, True),
        ({"replica.fetch.wait.max.ms": "300"}, {"replica.lag.time.max.ms": "400"}, True),
        ({"replica.lag.time.max.ms": "400"}, {"replica.fetch.wait.max.ms": "300"}, True),
        ({"replica.lag.time.max.ms": "4000"}, {"replica.fetch.wait.max.ms": "5000"}, False),
        ({}, {"replica.lag.time.max.ms": "400", "num.partitions": "3"}, False),
    ],
)
def test_a_setting_may_need_another(
    of_cluster: dict[str, str], of_scenario: dict[str, str], is_right: bool, tmp_path: Path
) -> None:
    path = write(tmp_path, cluster={**CLUSTER, "configs": of_cluster}, settings=of_scenario)
    if is_right:
        assert load(path).settings == of_scenario
        return
    with pytest.raises(ScenarioError, match=r"scenario.yaml, line \d+: settings: replica.fetch.wait.max.ms must be at"):
        load(path)


def test_settings_are_as_a_file_of_kafkas_has_them(tmp_path: Path) -> None:
    settings = {"auto.leader.rebalance.enable": False, "unclean.leader.election.enable": True, "min.insync.replicas": 2}
    given_ = load(write(tmp_path, cluster=CLUSTER, settings=settings))
    assert [given_.settings[name] for name in settings] == ["false", "true", "2"]
    with pytest.raises(ScenarioError, match=r"line \d+: settings"):
        load(write(tmp_path, cluster=CLUSTER, settings=["min.insync.replicas"]))
