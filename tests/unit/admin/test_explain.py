"""`kwob explain` and `kwob topics --explain`: what they print, and what they refuse."""

from __future__ import annotations

import itertools
import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

from controller.admin.commands import topics
from controller.admin.explain import main_async as explain
from controller.admin.layout.command import OF_KRAFT
from controller.admin.partitioners import keyed, keyed_by_crc32, murmur2, round_robin, sticky
from controller.admin.toolkit.machine import Machine
from controller.wire.protocol import ApiKey
from tests.unit.admin.explained import said

MURMUR2 = [
    ("21", -973932308, 1173551340), ("foobar", -790332482, 1357151166),
    ("a-little-bit-long-string", -985981536, 1161502112), ("a-little-bit-longer-string", -1486304829, 661178819),
    ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971, 2088585677), ("abc", 479470107, 479470107),
    ("", 275646681, 275646681), ("kafka", -798503068, 1348980580), ("key", -1079937367, 1067546281),
]  # fmt: skip


@pytest.mark.feature("004-24")
@pytest.mark.parametrize(("key", "value", "masked"), MURMUR2, ids=[row[0] or "empty" for row in MURMUR2])
def test_murmur2(key: str, value: int, masked: int) -> None:
    assert (murmur2(key.encode()), murmur2(key.encode()) & 0x7FFFFFFF) == (value, masked)


@pytest.mark.feature("004-24")
def test_keys_go_to_partitions() -> None:
    assert [keyed(str(n).encode(), 3) for n in range(10)] == [2, 0, 2, 2, 1, 0, 1, 0, 0, 2]
    assert [keyed(k, 10) for k in (b"21", b"foobar", b"abc", b"kafka", b"key")] == [0, 6, 7, 0, 1]
    assert keyed_by_crc32(b"123456789", 1 << 32) == 0xCBF43926, "the check value of this CRC"


@pytest.mark.feature("004-25")
def test_records_without_a_key() -> None:
    assert round_robin([0, 2, 5], 1, 7) == [2, 5, 0, 2, 5, 0, 2]
    drawn = list(sticky([0, 2, 5], 30, 3, random.Random(1)))
    batches = [drawn[at : at + 3] for at in range(0, 30, 3)]
    assert all(len(set(batch)) == 1 for batch in batches)
    assert all(one[0] != two[0] for one, two in itertools.pairwise(batches))
    assert set(drawn) == {0, 2, 5}
    assert list(sticky([4], 3, 1, random.Random(1))) == [4, 4, 4]


def test_a_layout_from_flags() -> None:
    code, out, _ = said(
        "layout", "--partitions", "4", "--replication-factor", "2", "--brokers", "0:a,1:b,2:a", "--start-index", "0"
    )  # fmt: skip
    assert code == 0
    lines = out.splitlines()
    assert lines[0] == "broker list: 0,1,2 (one of each rack in turn)"
    assert lines[1] == "partitions 0 to 3: placed when the topic was created, start index 0, shift 0"
    assert "1          leader   1       b     (1 + 0) mod 3 = 1\n" in out
    assert "replica skew 1.5, leader skew 1.5 (1 is perfect), rack violations 0" in out
    assert [line for line in lines if line.endswith((" L", " 2", " ."))], "the picture"
    assert all(line == line.rstrip() for line in lines)


@pytest.mark.parametrize("shift", [None, 0, 1, 3])
@pytest.mark.parametrize("start", [0, 1, 3])
def test_where_a_layout_starts_is_as_the_flags_say(start: int, shift: int | None) -> None:
    """The shift is the start unless another is given, as for a topic that is created with a fixed start."""
    words = ("layout", "--partitions", "9", "--replication-factor", "3", "--brokers", "0,1,2,3", "--json")
    given = ("--start-index", str(start), *(() if shift is None else ("--shift", str(shift))))
    (run,) = json.loads(said(*words, *given)[1])["runs"]
    assert (run["start_index"], run["shift"] % 3) == (start, (start if shift is None else shift) % 3)


def test_the_naive_scheme_from_flags() -> None:
    code, out, _ = said(
        "layout", "--partitions", "7", "--replication-factor", "3", "--brokers", "0,1,2,3,4", "--scheme", "naive",
        "--json",
    )  # fmt: skip
    value = json.loads(out)
    assert code == 0
    assert [p["replicas"] for p in value["partitions"]][:2] == [[0, 1, 2], [1, 2, 3]]
    assert value["skew"]["leader_skew"] == pytest.approx(10 / 7)


def test_a_drawn_start_is_told_in_json() -> None:
    _, out, _ = said("layout", "--partitions", "9", "--replication-factor", "2", "--brokers", "7,3,5", "--json")
    value = json.loads(out)
    assert value["broker_list"] == [3, 5, 7]
    assert value["runs"][0]["start_index"] in (0, 1, 2)


def test_pictures_in_files(tmp_path: Path) -> None:
    for name, mark in (("layout.html", "<html"), ("layout.svg", "<svg")):
        argv = ("layout", "--partitions", "3", "--replication-factor", "1", "--brokers", "1,2,3")
        assert said(*argv, "--picture", str(tmp_path / name))[0] == 0
        assert mark in (tmp_path / name).read_text().lower()


REFUSED = [
    ("no replicas to place", "layout --partitions 3 --replication-factor 4 --brokers 1,2",
     "Replication factor: 4 larger than available brokers: 2."),
    ("only some have a rack", "layout --partitions 3 --replication-factor 1 --brokers 1:a,2",
     "Not all brokers have rack information."),
    ("a broker twice", "layout --partitions 3 --replication-factor 1 --brokers 1,1", "broker 1 is listed twice"),
    ("not a broker", "layout --partitions 3 --replication-factor 1 --brokers x", "'x' is not ID or ID:RACK"),
    ("a start beyond the brokers", "layout --partitions 3 --replication-factor 1 --brokers 1,2 --start-index 2",
     "--start-index 2: must be 0 to 1, for there are 2 brokers"),
    ("another kind of picture", "layout --partitions 1 --replication-factor 1 --brokers 1 --picture a.png",
     "the name must end in .html or .svg"),
    ("a topic without a number", "assignors --topic t --members A", "expected NAME=PARTITIONS"),
    ("a number without a topic", "assignors --topic =3 --members A", "expected NAME=PARTITIONS"),
    ("a topic twice", "assignors --topic t=3 --topic t=4 --members A", "each topic once"),
    ("one partition too many", "assignors --topic t=60000 --topic u=40001 --members A", "100001 partitions in all"),
    ("of another topic", "assignors --topic t=1 --members A --owned A=u:0", "'u:0' is not TOPIC:N or TOPIC:N-M"),
    ("from nowhere", "assignors --topic t=1 --members A --owned A=t:-1", "'t:-1' is not TOPIC:N or TOPIC:N-M"),
    ("too many partitions", "assignors --topic t=999999999 --members A", "at most 100000"),
    ("nobody", "assignors --topic t=1 --members ,", "name at least one"),
    ("twice", "assignors --topic t=1 --members A,A", "A twice"),
    ("no such topic", "assignors --topic t=1 --members A --subscribe A=u", "no --topic u; there are t"),
    ("no such partition", "assignors --topic t=1 --members A --owned A=t:0-4", "t has partitions 0 to 0"),
    ("leaves without being there", "assignors --topic t=1 --members A --leave B", "there is no such member"),
    ("joins again", "assignors --topic t=1 --members A --join A", "it is a member already"),
    ("nobody left", "assignors --topic t=1 --members A --leave A", "nobody would be left"),
    ("topics of a member twice", "assignors --topic t=1 --topic u=1 --members A --subscribe A=t --subscribe A=u",
     "--subscribe A=u: A twice"),
    ("what it owns twice", "assignors --topic t=9 --members A --owned A=t:0 --owned A=t:1", "--owned A=t:1: A twice"),
    ("of whom", "assignors --topic t=9 --members A --join B --owned B=t:0", "expected MEMBER=..., the members are A"),
    ("owned by nobody", "assignors --topic t=9 --members A --owned A=", "expected MEMBER=..."),
    ("owned backwards", "assignors --topic t=9 --members A --owned A=t:3-1", "t has partitions 0 to 8"),
    ("owned without an end", "assignors --topic t=9 --members A --owned A=t:3-", "'t:3-' is not TOPIC:N or TOPIC:N-M"),
    ("no partitions", "partitioner --key a", "give --partitions N, 1 to 1000000"),
    ("zero partitions", "partitioner --partitions 0", "give --partitions N, 1 to 1000000"),
    ("partitions without an end", "partitioner --partitions 2000000000", "give --partitions N, 1 to 1000000"),
    ("too many records", "partitioner --partitions 1 --records 10001", "--records must be 0 to 10000"),
    ("fewer records than none", "partitioner --partitions 1 --records -1", "--records must be 0 to 10000"),
    ("batches of nothing", "partitioner --partitions 1 --per-batch 0", "--per-batch at least 1"),
    ("no topic", "partitioner --bootstrap-server h:1", "--bootstrap-server needs --topic"),
    ("not a partition", "partitioner --partitions 3 --unavailable x", "expected partition numbers"),
    ("no group partitions", "coordinator --group g --offsets-partitions 0", "must be at least 1"),
]  # fmt: skip


@pytest.mark.parametrize(("argv", "message"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED])
def test_refusals(argv: str, message: str) -> None:
    code, out, err = said(*argv.split())
    assert (code, out) == (1, "")
    assert message in err and err.startswith("kwob explain ") and err.count("\n") == 1
    code, out, _ = said(*argv.split(), "--json")
    assert code == 1 and message in json.loads(out)["error"]


def test_which_partition() -> None:
    _, out, _ = said("partitioner", "--partitions", "10", "--key", "21", "--key", "foobar", "--unavailable", "6")
    assert "21      -973932308    1173551340       0                   2\n" in out
    assert "has no leader: the producer waits" in out
    empty = ("partitioner", "--partitions", "10", "--key", "")
    assert "275646681     275646681       1                 any\n" in said(*empty)[1], "librdkafka puts it anywhere"
    assert json.loads(said(*empty, "--json")[1])["keys"][0]["librdkafka"] is None
    _, out, _ = said("partitioner", "--partitions", "2", "--unavailable", "0,1")
    assert out == "without a key: no partition has a leader; the producer waits\n"


def test_where_records_without_a_key_go() -> None:
    """In turn, and a batch at a time; never to a partition without a leader. A key counts in whatever bytes it has."""
    words = ("partitioner", "--partitions", "4", "--unavailable", "1", "--records", "8", "--per-batch", "1")
    answer = json.loads(said(*words, "--key", "\udcff", "--json")[1])
    assert answer["available"] == [0, 2, 3] and answer["keys"][0]["murmur2"] == murmur2(b"\xff")
    begin = answer["available"].index(answer["round_robin"][0])
    assert answer["round_robin"] == [answer["available"][(begin + n) % 3] for n in range(8)]
    assert len(answer["sticky"]) == 8 and set(answer["sticky"]) <= {0, 2, 3}
    assert all(one != other for one, other in itertools.pairwise(answer["sticky"])), "each batch goes to another"
    assert json.loads(said(*words[:4], "0,1,2,3", "--json")[1])["round_robin"] == []
    _, out, _ = said(*words, "--key", "a")
    lines = [" ".join(line.split()) for line in out.splitlines() if line]
    turn, stick = (" ".join(map(str, json.loads(said(*words, "--json")[1])[how])) for how in ("round_robin", "sticky"))
    assert lines == [
        "key murmur2 & 0x7fffffff mod 4 librdkafka (crc32)",
        f"a {murmur2(b'a')} {murmur2(b'a') & 0x7FFFFFFF} {keyed(b'a', 4)} {keyed_by_crc32(b'a', 4)}",
        "Java, kafka-python, aiokafka: murmur2. librdkafka: crc32, unless partitioner=murmur2_random",
        f"without a key, round-robin (Java before 2.4): {turn}",
        f"without a key, sticky (Java since 2.4): {stick}",
    ]


def test_who_keeps_a_group_where_there_is_no_cluster_to_ask() -> None:
    _, out, _ = said("coordinator", "--group", "g", "--offsets-partitions", "1")
    assert [" ".join(line.split()) for line in out.splitlines()] == [
        "group java hash partition of __consumer_offsets coordinator",
        "g 103 abs(103) mod 1 = 0 - the broker that leads this partition",
    ]


GROUPS = [
    ("test-group", 12), ("group1", 40), ("my-group", 12), ("console-consumer-12345", 6), ("polygenelubricants", 0),
]  # fmt: skip


@pytest.mark.feature("004-20")
@pytest.mark.parametrize(("group", "partition"), GROUPS)
def test_which_partition_keeps_a_group(group: str, partition: int) -> None:
    _, out, _ = said("coordinator", "--group", group, "--json")
    assert json.loads(out)["groups"][0]["partition"] == partition


def asked(subject: str, *words: str) -> Any:
    async def main(argv: Any, machine: Machine) -> int:
        return await explain([subject, *words, *argv], machine)

    return main


#: the leader of partition 0 of two; code and node that the cluster names -> what stands in the row of a group of it
COORDINATORS = [
    (1, (0, 1), {"leader": 1, "coordinator": 1}, "broker 1\n"),
    (0, (0, 1), {"leader": 0, "coordinator": 1},
     "broker 1     the partition is led by 0, but the cluster names 1: it is moving\n"),
    (-1, (15, -1), {"leader": None, "coordinator": None}, "-\n"),
    (1, (15, -1), {"leader": 1, "coordinator": None},
     "broker 1     the partition is led by 1, but the cluster names nobody yet\n"),
    (-1, (0, 1), {"leader": None, "coordinator": 1},
     "broker 1     the partition has no leader, but the cluster names 1: it is moving\n"),
]  # fmt: skip


@pytest.mark.parametrize(("leader", "named", "row", "text"), COORDINATORS)
def test_the_coordinator_in_a_cluster(
    cluster: Any, tool: Any, leader: int, named: tuple[int, int], row: dict[str, Any], text: str
) -> None:
    cluster.topic("__consumer_offsets", (0,), (1,))
    cluster.topics["__consumer_offsets"][0].leader = leader
    code, node = named
    cluster.answers[ApiKey.FIND_COORDINATOR] = lambda *_: {
        "error_code": code, "node_id": node, "host": "h", "port": 1,
    }  # fmt: skip
    main = asked("coordinator", "--group", "b")
    outcome = tool(main, cluster, [])
    assert outcome.out.splitlines(keepends=True)[1] == "b      98         abs(98) mod 2 = 0                " + text
    common = {"group": "b", "java_hash": 98, "partitions": 2, "partition": 0, "note": ""}
    assert json.loads(tool(main, cluster, ["--json"]).out) == {"groups": [common | row]}


@pytest.mark.parametrize(("group", "partition", "leader"), [("b", 2, 2), ("a", 1, 1), ("c", 0, None)])
def test_a_partition_that_a_broker_does_not_know_yet_makes_no_other_of_the_rest(
    cluster: Any, tool: Any, group: str, partition: int, leader: int | None
) -> None:
    cluster.topic("__consumer_offsets", (0,), (1,), (2,))
    del cluster.topics["__consumer_offsets"][0]
    cluster.answers[ApiKey.FIND_COORDINATOR] = lambda *_: {
        "error_code": 15, "node_id": -1, "host": "", "port": -1,
    }  # fmt: skip
    (row,) = json.loads(tool(asked("coordinator", "--group", group), cluster, ["--json"]).out)["groups"]
    assert (row["partitions"], row["partition"], row["leader"]) == (3, partition, leader)


def test_a_cluster_that_keeps_no_groups_yet_creates_nothing_and_one_that_refuses_is_told_of(
    cluster: Any, tool: Any
) -> None:
    main = asked("coordinator", "--group", "g", "--offsets-partitions", "7")
    cells = re.split(" {2,}", tool(main, cluster, []).out.splitlines()[1])
    assert cells[:4] == ["g", "103", "abs(103) mod 7 = 5", "-"]
    assert cells[4:] == ["__consumer_offsets does not exist; the first group creates it"]
    assert cluster.topics == {}
    cluster.topics["__consumer_offsets"] = {}
    assert "__consumer_offsets has no partitions yet; try again\n" in tool(main, cluster, []).err
    cluster.topic("__consumer_offsets", (0,))
    cluster.answers[ApiKey.FIND_COORDINATOR] = lambda *_: {"error_code": 30, "node_id": -1, "host": "", "port": -1}
    outcome = tool(main, cluster, [])
    assert (outcome.code, outcome.out) == (1, "") and outcome.err.startswith("kwob explain coordinator: ")


def test_partitions_of_a_topic_that_is_not_there_or_is_being_made(cluster: Any, tool: Any) -> None:
    main = asked("partitioner", "--topic", "t")
    outcome = tool(main, cluster, [])
    assert (outcome.code, outcome.err.count("\n")) == (1, 1) and "kwob explain partitioner: " in outcome.err
    cluster.topics["t"] = {}
    assert tool(main, cluster, []).err == "kwob explain partitioner: t has no partitions yet; try again\n"


def test_partitions_and_layouts_of_a_cluster(cluster: Any, tool: Any) -> None:
    cluster.topic("t", (0, 1), (1, 2))
    cluster.topics["t"][1].leader = -1

    async def partitioner(argv: Any, machine: Machine) -> int:
        return await explain(["partitioner", "--topic", "t", "--json", "--key", "a", *argv], machine)

    assert json.loads(tool(partitioner, cluster, []).out)["available"] == [0]

    async def layout(argv: Any, machine: Machine) -> int:
        return await explain(["layout", "--partitions", "3", "--replication-factor", "3", "--json", *argv], machine)

    assert json.loads(tool(layout, cluster, []).out)["broker_list"] == [0, 1, 2]
    assert len(cluster.topics["t"]) == 2


def test_topics_of_a_cluster_are_explained(cluster: Any, tool: Any, tmp_path: Path) -> None:
    cluster.brokers = {0: "a", 1: "b", 2: "c"}
    cluster.topic("t", (1, 2), (2, 0), (0, 1))
    cluster.topics["t"][2].leader = 1
    outcome = tool(topics, cluster, ["--describe", "--topic", "t", "--explain", "--picture", str(tmp_path / "t.html")])
    assert outcome.code == 0, outcome.err
    assert outcome.out.startswith("Topic t\n\nbroker list: 0,1,2 (one of each rack in turn)\npartitions 0 to 2: placed")
    assert "rack a  rack b  rack c\n" in outcome.out
    assert outcome.out.endswith("led elsewhere than preferred: broker 0 100 %\n")
    assert "rack a" in (tmp_path / "t.html").read_text()
    value = json.loads(tool(topics, cluster, ["--describe", "--topic", "t", "--explain", "--json"]).out)
    assert value["layouts"][0]["leader_imbalance"] == {"0": 1.0, "1": 0.0, "2": 0.0}
    assert value["layouts"][0]["skew"]["leader_skew"] == 1.0


def test_what_was_created_or_added_is_explained(cluster: Any, tool: Any) -> None:
    created = tool(topics, cluster, ["--create", "--topic", "new", "--replica-assignment", "0:1,2:0", "--explain"])
    assert created.out.startswith("Created topic new.\nTopic new\n\nbroker list: 0,1,2\n")
    assert "placed by hand" in created.out
    altered = tool(topics, cluster, ["--alter", "--topic", "new", "--partitions", "4", "--explain"])
    assert altered.out.count("by hand") > 1 and len(cluster.topics["new"]) == 4


def test_explain_without_an_action_needs_no_cluster(cluster: Any, tool: Any) -> None:
    words = ["--explain", "--partitions", "2", "--replication-factor", "1", "--brokers", "4,5", "--start-index", "1"]
    outcome = tool(topics, cluster, words, bootstrap=None)
    assert outcome.out.startswith("broker list: 4,5\npartitions 0 to 1: placed when the topic was created, start index")
    assert not cluster.seen
    refused = tool(topics, cluster, ["--list", "--explain"])
    assert (refused.code, refused.err.splitlines()[0]) == (1, 'Option "[explain]" can\'t be used with option "[list]"')
    assert tool(topics, cluster, ["--list", "--picture", "x.svg"]).err.startswith('Missing required argument "[explain')


async def layout_of(words: Any, machine: Machine) -> int:
    """The address stands before the subject."""
    return await explain([*words[2:], *words[:2]], machine)


def test_a_layout_of_a_cluster_of_kraft_says_whose_rule_it_is(cluster: Any, tool: Any) -> None:
    """Of which only some brokers have racks, too: KRaft's controller takes them."""
    words = ["layout", "--partitions", "3", "--replication-factor", "2"]
    cluster.brokers = {0: "a", 1: None, 2: "b"}
    assert tool(layout_of, cluster, words).code == 1
    cluster.answers[ApiKey.DESCRIBE_QUORUM] = lambda broker, body: None
    outcome = tool(layout_of, cluster, words)
    assert outcome.code == 0 and "StripedReplicaPlacer" in " ".join(outcome.out.split())
    assert json.loads(tool(layout_of, cluster, [*words, "--json"]).out)["notes"] == [OF_KRAFT]
    del cluster.answers[ApiKey.DESCRIBE_QUORUM]
    cluster.brokers = dict.fromkeys(range(3))
    assert "StripedReplicaPlacer" not in tool(layout_of, cluster, words).out
