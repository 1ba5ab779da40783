"""`kwob snapshot`: what of a cluster goes into the file, rates from two looks, what cannot be learnt, other names."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.admin.snapshot.anonymise import anonymise
from controller.admin.snapshot.command import main_async
from controller.admin.snapshot.generate import generate
from controller.admin.snapshot.reading import Flow, Reading, flows, lags
from controller.admin.toolkit.machine import Machine
from controller.wire.cluster_file import (
    BrokerShape,
    ClusterShape,
    GroupShape,
    LogDir,
    PartitionShape,
    TopicShape,
    dump,
    parse,
)
from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey
from controller.wire.types import BrokerId, PartitionReplica, ReplicaAssignment, TopicPartition
from tests.worlds.scripted_brokers import HIGHEST

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def snapshot(argv: Sequence[str], machine: Machine) -> Awaitable[int]:
    return main_async(argv, machine)


def taken(cluster: Any, tool: Any, *words: str) -> tuple[ClusterShape, str]:
    """The file as text on standard output, and what was said beside."""
    outcome = tool(snapshot, cluster, ["-o", "-", *words])
    assert outcome.code == 0, outcome.err
    return parse(outcome.out), outcome.err


def test_what_of_a_cluster_is_in_the_file(cluster: Any, tool: Any) -> None:
    cluster.brokers = {0: "a", 1: "b", 2: None}
    cluster.topic("t", (0, 1), (1, 2, 0))
    cluster.topics["t"][1].isr = (1,)
    cluster.topics["t"][1].leader_epoch = 7
    cluster.running[T1] = ReplicaAssignment(replicas=(1, 2, 0), adding_replicas=(0,), removing_replicas=(2,))
    cluster.sizes = {PartitionReplica(T0, BrokerId(0)): 900, PartitionReplica(T0, BrokerId(1)): 800}
    cluster.configs[2, "t"] = {"retention.ms": "5"}
    cluster.configs[4, "1"] = {"leader.replication.throttled.rate": "12"}
    shape, said = taken(cluster, tool)
    assert said == "brokers: 3, topics: 1, partitions: 2, groups: 0\n"
    assert [(b.id, b.rack) for b in shape.brokers] == [(0, "a"), (1, "b"), (2, None)]
    assert shape.brokers[1].configs == {"leader.replication.throttled.rate": "12"}
    assert shape.brokers[0].log_dirs[0].path == "/data" and shape.brokers[0].log_dirs[0].used_bytes == 900
    one, other = shape.topics["t"].partitions
    assert shape.topics["t"].configs == {"retention.ms": "5"}
    assert (one.replicas, one.isr, one.leader, one.bytes) == ((0, 1), None, None, 900), "that of the leader"
    assert (other.isr, other.leader_id, other.leader_epoch) == ((1,), 1, 7)
    assert (other.adding_replicas, other.removing_replicas) == ((0,), (2,))


@pytest.mark.parametrize("leader", [-1, 0, 1, 2])
@pytest.mark.parametrize("isr", [(0, 1, 2), (0,), (1, 2), (2, 1), ()])
def test_who_leads_is_told_whoever_it_is(cluster: Any, tool: Any, leader: int, isr: tuple[int, ...]) -> None:
    """Also that nobody does, and who leads though another would be the usual one."""
    if leader >= 0 and leader not in isr:
        return
    cluster.topic("t", (0, 1, 2))
    cluster.topics["t"][0].leader, cluster.topics["t"][0].isr = leader, isr
    shape, _ = taken(cluster, tool)
    partition = shape.topics["t"].partitions[0]
    assert partition.leader_id == (None if leader < 0 else leader)
    assert set(partition.in_sync) == set(isr)


#: the leader (-1: none), sizes by broker, size of a copy between dirs -> the size of the partition
SIZES = [
    (0, {0: 900, 1: 800}, 0, 900),
    (0, {0: 800, 1: 900}, 0, 800),
    (0, {0: 800, 1: 900}, 5000, 800),
    (-1, {0: 800, 1: 900}, 0, 900),
    (-1, {0: 800, 1: 900}, 5000, 900),
]


@pytest.mark.parametrize(("leader", "sizes", "copied", "size"), SIZES)
def test_a_partition_is_as_large_as_its_leaders_log(
    cluster: Any, tool: Any, leader: int, sizes: dict[int, int], copied: int, size: int
) -> None:
    cluster.topic("t", (0, 1))
    cluster.topics["t"][0].leader = leader
    cluster.sizes = {PartitionReplica(T0, BrokerId(b)): n for b, n in sizes.items()}
    if copied:
        for broker in sizes:
            cluster.futures[PartitionReplica(T0, BrokerId(broker))] = "/other"
            cluster.copied[PartitionReplica(T0, BrokerId(broker))] = copied
    shape, _ = taken(cluster, tool)
    assert shape.topics["t"].partitions[0].bytes == size


#: what the files of two brokers say -> what counts for the cluster
FILES = [
    ("5", "5", "5"),
    ("5", "6", None),
    ("5", None, None),
    (None, None, None),
]


@pytest.mark.parametrize("silent", [None, "0", "1", "2"])
@pytest.mark.parametrize(("first", "second", "counts"), FILES)
def test_of_brokers_files_counts_what_all_say(
    cluster: Any, tool: Any, first: str | None, second: str | None, counts: str | None, silent: str | None
) -> None:
    """All that tell: who refuses has no say."""
    telling = [broker for broker in "012" if broker != silent][:2]
    cluster.brokers = dict.fromkeys(range(2 if silent is None else 3))
    name, said_by = "replica.lag.time.max.ms", dict(zip(telling, (first, second), strict=True))

    def of_broker(_: int, body: Any) -> dict[str, Any] | None:
        (asked,) = body.resources
        if asked.resource_type != 4:
            return None
        named = {"resource_type": asked.resource_type, "resource_name": asked.resource_name}
        if asked.resource_name == silent:
            return {"results": [{**named, "error_code": ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "configs": []}]}
        rows = {"num.network.threads": "3", name: said_by[asked.resource_name]}
        listed = [{"name": n, "value": v, "config_source": 4, "synonyms": []} for n, v in rows.items() if v is not None]
        return {"results": [{**named, "configs": listed}]}

    cluster.answers[ApiKey.DESCRIBE_CONFIGS] = of_broker
    shape, _ = taken(cluster, tool)
    assert shape.configs == ({} if counts is None else {name: counts})


#: bytes of a volume and those of it that are free, as a broker says them (-1: it does not) -> capacity, what is used;
#: the logs are of 900 bytes
VOLUMES = [
    (5000, 100, 5000, 4900),
    (5000, 0, 5000, 5000),
    (5000, 5000, 5000, 0),
    (0, 0, 0, 0),
    (5000, -1, 5000, 900),
    (-1, 100, None, 900),
    (-1, 0, None, 900),
    (-1, -1, None, 900),
]


@pytest.mark.parametrize(("total", "free", "capacity", "used"), VOLUMES)
def test_how_full_a_disk_is_is_what_its_broker_says_or_its_logs(
    cluster: Any, tool: Any, monkeypatch: pytest.MonkeyPatch, total: int, free: int, capacity: int | None, used: int
) -> None:
    monkeypatch.setitem(HIGHEST, ApiKey.DESCRIBE_LOG_DIRS, 4)
    log = {"partition_index": 0, "partition_size": 900, "offset_lag": 0}
    volume = {"log_dir": "/data", "topics": [{"name": "t", "partitions": [log]}]}
    cluster.answers[ApiKey.DESCRIBE_LOG_DIRS] = lambda *_: {
        "results": [{**volume, "total_bytes": total, "usable_bytes": free}]
    }
    cluster.topic("t", (0, 1, 2))
    for broker in taken(cluster, tool)[0].brokers:
        assert broker.log_dirs == (LogDir(path="/data", capacity_bytes=capacity, used_bytes=used),)


def test_rates_come_from_two_looks(cluster: Any, tool: Any) -> None:
    cluster.topic("t", (0, 1))
    replica, looks = PartitionReplica(T0, BrokerId(0)), iter(range(100))

    def grow(broker: int, body: Any) -> None:
        if broker == 0:
            cluster.sizes[replica] = 1000 + 500 * next(looks)

    def ends(broker: int, body: Any) -> dict[str, Any]:
        is_latest = body.topics[0].partitions[0].timestamp == -1
        offset = cluster.sizes[replica] // 10 if is_latest else 0
        row = {"partition_index": 0, "error_code": 0, "timestamp": -1, "offset": offset, "leader_epoch": 0}
        return {"topics": [{"name": "t", "partitions": [row]}]}

    cluster.answers = {ApiKey.DESCRIBE_LOG_DIRS: grow, ApiKey.LIST_OFFSETS: ends}
    shape, _ = taken(cluster, tool, "--for", "10s")
    assert shape.topics["t"].partitions[0].in_bytes_per_s == pytest.approx(50, abs=1)
    assert shape.topics["t"].partitions[0].bytes == 1500


def test_what_is_refused_is_named_and_the_rest_is_there(cluster: Any, tool: Any) -> None:
    cluster.topic("t", (0, 1))
    cluster.mute.add(2)
    denied = {"error_code": ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "error_message": "no", "resource_type": 2}
    cluster.answers[ApiKey.DESCRIBE_CONFIGS] = lambda broker, body: (
        {"results": [denied | {"resource_name": "t", "configs": []}]} if body.resources[0].resource_type == 2 else None
    )
    shape, said = taken(cluster, tool)
    assert [b.id for b in shape.brokers] == [0, 1, 2]
    assert "left out: configs of topic t: ClusterAuthorizationException: no\n" in said
    assert "left out: log directories of broker 2: no answer\n" in said


def test_topics_whose_configs_may_not_be_described_cost_no_other(cluster: Any, tool: Any) -> None:
    for name in ("a", "b", "c", "open"):
        cluster.topic(name, (0, 1))
    entry = {"name": "retention.ms", "value": "7", "config_source": 1, "is_sensitive": False, "read_only": False}

    def some(broker: int, body: Any) -> dict[str, Any] | None:
        if body.resources[0].resource_type != 2:
            return None
        denied = {"error_code": ErrorCode.TOPIC_AUTHORIZATION_FAILED, "error_message": None, "configs": []}
        told = {"error_code": 0, "error_message": None, "configs": [{**entry, "synonyms": []}]}
        names = [r.resource_name for r in body.resources]
        return {
            "results": [{"resource_type": 2, "resource_name": n, **(told if n == "open" else denied)} for n in names]
        }

    cluster.answers[ApiKey.DESCRIBE_CONFIGS] = some
    shape, said = taken(cluster, tool)
    assert shape.topics["open"].configs == {"retention.ms": "7"}
    assert list(shape.topics) == ["a", "b", "c", "open"]
    why = "TopicAuthorizationException: Topic authorization failed."
    assert f"left out: configs of topic a, and of 2 others: {why}\n" in said


def test_a_long_refusal_keeps_its_ends(cluster: Any, tool: Any) -> None:
    cluster.topic("t", (0, 1))
    words = f"Request {'x' * 900} needs DESCRIBE permission."
    cluster.answers[ApiKey.LIST_PARTITION_REASSIGNMENTS] = lambda broker, body: {
        "error_code": ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "error_message": words, "topics": [],
    }  # fmt: skip
    line = next(line for line in taken(cluster, tool)[1].splitlines() if "reassignments" in line)
    assert line.startswith("left out: reassignments: ClusterAuthorizationException: Request xx")
    assert line.endswith("xx needs DESCRIBE permission.") and len(line) < 200


def test_a_broker_that_is_down_is_named(cluster: Any, tool: Any) -> None:
    cluster.topic("t", (0, 2))
    cluster.down.add(2)
    shape, said = taken(cluster, tool)
    assert [b.id for b in shape.brokers] == [0, 1, 2]
    assert "left out: rack and directories of broker 2: it is down\n" in said


def test_nothing_is_written_into_the_cluster(cluster: Any, tool: Any) -> None:
    cluster.topic("t", (0, 1))
    taken(cluster, tool)
    reads = {
        ApiKey.METADATA, ApiKey.API_VERSIONS, ApiKey.DESCRIBE_LOG_DIRS, ApiKey.DESCRIBE_CONFIGS, ApiKey.LIST_OFFSETS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS, ApiKey.LIST_GROUPS,
    }  # fmt: skip
    assert {api_key for _, api_key, _ in cluster.seen} <= reads


REFUSED = [
    ("no cluster", ["--out", "x"], None, "name a cluster with --bootstrap-server"),
    ("nobody there", ["--out", "x"], "b7:9092", "Cannot reach b7:9092"),
]


@pytest.mark.parametrize(("argv", "bootstrap", "message"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED])
def test_refusals(cluster: Any, tool: Any, argv: list[str], bootstrap: str | None, message: str) -> None:
    outcome = tool(snapshot, cluster, argv, bootstrap=bootstrap)
    assert outcome.code == 1 and outcome.err.startswith(f"kwob snapshot: {message}") and not Path("x").exists()


def test_a_file_that_is_there_is_not_replaced(cluster: Any, tool: Any, tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text("mine")
    assert tool(snapshot, cluster, ["-o", str(path)]).code == 1 and path.read_text() == "mine"
    assert tool(snapshot, cluster, ["-o", str(path), "--overwrite"]).code == 0
    assert parse(path.read_text()).brokers[0].id == 0
    assert [p.name for p in tmp_path.iterdir()] == ["cluster.yaml"]


@pytest.mark.parametrize(("place", "why"), [("", "it is a folder"), ("none/c.yaml", "none: No such file or directory")])
def test_a_place_where_no_file_can_be_is_told_before_anybody_is_asked(
    cluster: Any, tool: Any, tmp_path: Path, place: str, why: str
) -> None:
    path = tmp_path / place
    outcome = tool(snapshot, cluster, ["-o", str(path), "--overwrite", "--for", "60s"])
    assert outcome.code == 1 and outcome.err.startswith(f"kwob snapshot: {path} cannot be written: ")
    assert outcome.err.endswith(f"{why}\n") and not cluster.seen and not list(tmp_path.iterdir())


def test_a_move_that_began_after_the_look_at_its_partition_is_left_out(cluster: Any, tool: Any) -> None:
    cluster.brokers = {0: None, 1: None, 2: None}
    cluster.topic("t", (0, 1), (1, 2))
    cluster.running = {
        T0: ReplicaAssignment(replicas=(2, 0, 1), adding_replicas=(2,), removing_replicas=(0,)),
        T1: ReplicaAssignment(replicas=(1, 2), adding_replicas=(2,), removing_replicas=(1,)),
    }
    shape, _ = taken(cluster, tool)
    began_later, under_way = shape.topics["t"].partitions
    assert (began_later.replicas, began_later.adding_replicas, began_later.removing_replicas) == ((0, 1), (), ())
    assert (under_way.replicas, under_way.adding_replicas, under_way.removing_replicas) == ((1, 2), (2,), (1,))


def reading(at_s: float, end: int, size: int, committed: int | None = None, first: int = 0) -> Reading:
    groups = {} if committed is None else {"g": {T0: committed}}
    return Reading(at_s=at_s, ends={T0: end}, first={T0: first}, sizes={T0: size}, committed=groups)


FLOWS = [
    ("grown", reading(0, 100, 1000, 50), reading(10, 200, 3000, 100), Flow(in_bytes_per_s=200, out_bytes_per_s=100)),
    ("shortened meanwhile", reading(0, 100, 9000), reading(10, 200, 1000), Flow(in_bytes_per_s=50)),
    ("its first records went", reading(0, 100, 9000), reading(10, 200, 1000, first=180), Flow(in_bytes_per_s=500)),
    ("they had gone", reading(0, 100, 9000, first=80), reading(10, 200, 1200, first=80), Flow(in_bytes_per_s=100)),
    ("nothing came", reading(0, 100, 1000, 20), reading(10, 100, 1000, 30), Flow(out_bytes_per_s=10)),
    ("a group went back", reading(0, 100, 1000, 90), reading(10, 100, 1000, 10), Flow()),
    ("truncated", reading(0, 100, 1000), reading(10, 90, 900), Flow()),
]


@pytest.mark.parametrize(("before", "after", "expected"), [r[1:] for r in FLOWS], ids=[r[0] for r in FLOWS])
def test_rates(before: Reading, after: Reading, expected: Flow) -> None:
    assert flows(before, after) == {T0: expected}


def test_lags() -> None:
    for committed, lag in ((30, 70), (99, 1), (100, 0), (130, 0)):  # beyond the end: it was cut, or read later
        assert lags(reading(0, 100, 1, committed)) == {"g": {T0: lag}}


ARGUMENTS: dict[str, Any] = {
    "brokers": 6, "racks": 3, "topics": 4, "partitions": 40, "replication_factor": 3, "total_bytes": 10**9,
    "in_bytes_per_s": 1000.0, "skew": 1.0, "seed": 3,
}  # fmt: skip


def test_a_drawn_cluster_is_the_same_for_the_same_seed() -> None:
    shape = generate(**ARGUMENTS)
    assert shape == generate(**ARGUMENTS) == parse(dump(shape)) != generate(**ARGUMENTS | {"seed": 4})
    sizes = [len(t.partitions) for t in shape.topics.values()]
    assert sizes == sorted(sizes, reverse=True) and sizes[0] > 2 * sizes[-1]
    assert sum(sizes) == ARGUMENTS["partitions"]
    assert sum(p.bytes for _, p in shape.partitions()) == pytest.approx(ARGUMENTS["total_bytes"], rel=1e-6)
    assert sum(p.in_bytes_per_s for _, p in shape.partitions()) == pytest.approx(1000, abs=2)
    assert all(p.out_bytes_per_s == pytest.approx(2 * p.in_bytes_per_s, abs=0.2) for _, p in shape.partitions())
    assert dump(shape).rstrip().endswith("\nversion: 1"), "who reads another one must see that"
    racks = {b.id: b.rack for b in shape.brokers}
    assert all(len({racks[r] for r in p.replicas}) == 3 for _, p in shape.partitions())


@settings(max_examples=30)
@given(st.integers(1, 8), st.integers(0, 4), st.integers(1, 5), st.integers(0, 10**12), st.floats(0, 10), st.integers())
def test_any_drawn_cluster_can_be_read_back(
    brokers: int, racks: int, topics: int, size: int, skew: float, seed: int
) -> None:
    changes = {"brokers": brokers, "racks": racks, "topics": topics, "total_bytes": size, "skew": skew, "seed": seed}
    shape = generate(**ARGUMENTS | changes | {"replication_factor": 1})
    assert parse(dump(shape)) == shape
    assert sum(len(topic.partitions) for topic in shape.topics.values()) == ARGUMENTS["partitions"]
    assert all(topic.partitions for topic in shape.topics.values())


@pytest.mark.parametrize("skew", ["1e308", "-2", "nan", "inf", "x", "11"])
def test_a_skew_that_makes_no_cluster_is_refused(
    cluster: Any, tool: Any, skew: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        tool(snapshot, cluster, ["--generate", "--skew", skew, "-o", "-"], bootstrap=None)
    assert ended.value.code == 2 and f"'{skew}' is no number from 0 to 10" in capsys.readouterr().err


#: names that people gave, which look like others
GIVEN = (
    *("secret", "_secret", "__secret", "___secret", "secret-0", "secret__", "topic-1-secret", "_.secret"),
    *("__consumer_offsets_secret", "_consumer_offsets-secret", "secret__consumer_offsets"),
)
KAFKAS = ("__consumer_offsets", "__transaction_state", "__share_group_state")


@pytest.mark.parametrize("are_listed", [True, False], ids=["topics that are there", "topics that groups alone name"])
def test_no_name_that_people_gave_stays_whatever_it_begins_with(are_listed: bool) -> None:
    names = [name for pair in itertools.zip_longest(GIVEN, KAFKAS) for name in pair if name is not None]
    topics = {n: TopicShape(partitions=(PartitionShape(replicas=(1,), bytes=at),)) for at, n in enumerate(names)}
    lag = {f"{name}-{at}": at for at, name in enumerate(names)}
    shape = ClusterShape(
        brokers=tuple(
            BrokerShape(id=at, rack=name, host=name, log_dirs=(LogDir(path=f"/{name}"),), configs={"x": name})
            for at, name in enumerate((*names, ""))
        ),
        configs={str(at): name for at, name in enumerate(names)},
        topics=topics if are_listed else {},
        groups={name: GroupShape(lag=lag) for name in names},
    )
    hidden = anonymise(shape)
    assert "secret" not in dump(hidden)
    others = [name if name in KAFKAS else f"topic-{GIVEN.index(name) + 1}" for name in names]
    assert {name: t.partitions[0].bytes for name, t in hidden.topics.items()} == (
        {other: at for at, other in enumerate(others)} if are_listed else {}
    )
    behind = {f"{other}-{at}": at for at, other in enumerate(others)}
    assert [dict(group.lag) for group in hidden.groups.values()] == [behind] * len(names)
    racks = {b.rack for b in hidden.brokers}
    assert not {*hidden.groups, *racks} & {*names}, "in these nothing is Kafka's own"
    assert racks == {f"rack-{number}" for number in range(1, len(names) + 2)}, "an empty name is one, too"


def test_other_names_and_the_same_shape() -> None:
    text = """
version: 1
source: secret
brokers:
- {id: 1, rack: berlin, host: a.example, log_dirs: [{path: /srv/secret}], configs: {a.rate: "7", listeners: "X://h:1"}}
- {id: 2, rack: berlin}
topics:
  payments-eu:
    partitions: [[1, 2]]
    configs: {leader.replication.throttled.replicas: "0:1,1:2", x: secret, y: "0:1,secret"}
  __consumer_offsets: {partitions: [[1]]}
groups: {billing: {lag: {payments-eu-0: 4}}}
"""
    shape = anonymise(parse(text))
    hidden = dump(shape)
    for name in ("secret", "berlin", "example", "payments", "billing"):
        assert name not in hidden
    assert shape.topics["topic-1"].partitions == parse(text).topics["payments-eu"].partitions
    assert shape.topics["topic-1"].configs == {"leader.replication.throttled.replicas": "0:1,1:2"}
    assert "__consumer_offsets" in shape.topics and shape.groups["group-1"].lag == {"topic-1-0": 4}
    assert [b.rack for b in shape.brokers] == ["rack-1", "rack-1"] and shape.brokers[0].configs == {"a.rate": "7"}


@pytest.mark.parametrize(
    ("flag", "value", "complaint"),
    [
        ("--bytes", "9" * 400, "is more than 9223372036854775807 bytes"),
        ("--bytes", "much", "'much' is no size; expected for example 50MB"),
        ("--for", "9" * 400, "is no length of time"),
        ("--in-rate", "1Gb", "'1Gb': Gb and Mb are bits; write it in bytes: 1Gb is 125MB"),
    ],
)
def test_numbers_that_cannot_be_meant(
    cluster: Any, tool: Any, capsys: pytest.CaptureFixture[str], flag: str, value: str, complaint: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        tool(snapshot, cluster, ["--generate", flag, value, "-o", "-"], bootstrap=None)
    assert ended.value.code == 2 and complaint in capsys.readouterr().err


@pytest.mark.parametrize(("flag", "figure"), [("--bytes", "bytes"), ("--in-rate", "out_bytes_per_s")])
def test_a_cluster_that_is_larger_than_any_number_is_not_drawn(cluster: Any, tool: Any, flag: str, figure: str) -> None:
    few = ["--topics", "1", "--partitions", "1"]
    said = tool(snapshot, cluster, ["--generate", *few, flag, str(2**63 - 1), "-o", "-"], bootstrap=None)
    assert (said.code, said.out, said.err.count("\n")) == (1, "", 1)
    assert said.err.startswith(f"kwob snapshot: no cluster is so large: {figure}: should be less than or equal to 9")
