"""Notices of changed configs: what the controller acts on, what it leaves aside with a reason, and unclean elections in
each form in which they can be switched on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from itertools import chain, product
from typing import Any

import pytest

from controller.wire import log_events as ev
from controller.wire.protocol import ApiKey
from controller.wire.types import BrokerId, TopicPartition
from controller.wire.zk_operations import Create, Delete, GetChildren, GetData, SetData, ZkCode
from controller.wire.znodes import ConfigEntityZNode
from controller.world.config_notices import CHANGE_EXPIRATION_MS

Play = Callable[..., list[Any]]
TP = TopicPartition("t", 0)
UNCLEAN = "unclean.leader.election.enable"
ON = json.dumps({"version": 1, "config": {UNCLEAN: "true"}}).encode()


async def notify(cluster: Any, data: bytes | None) -> None:
    await cluster.zk(Create("/config/changes/config_change_", data, sequence=True))


async def leaderless(cluster: Any) -> None:
    """t-0 on brokers 1 and 2; only 1 is in the ISR, and dies."""
    rows = [{"name": "t", "num_partitions": -1, "replication_factor": -1,
             "assignments": [{"partition_index": 0, "broker_ids": [1, 2]}]}]  # fmt: skip
    await cluster.ask(ApiKey.CREATE_TOPICS, 5, {"topics": rows, "timeout": 5_000})
    registered = await cluster.read("/brokers/ids/2")
    await cluster.unregister(2)
    await cluster.unregister(1)
    await cluster.zk(Create("/brokers/ids/2", registered, ephemeral=True))
    await cluster.world.sleep(1)
    state = cluster.controller.state.leadership(TP)
    assert (state.leader, state.isr) == (None, (1,))


def leads(cluster: Any) -> bool:
    state = cluster.controller.state.leadership(TP)
    return state is not None and (state.leader, state.isr) == (2, (2,))


async def by_topic(cluster: Any) -> None:
    await cluster.zk(SetData("/config/topics/t", ON))
    await notify(cluster, b'{"version":2,"entity_path":"topics/t"}')


async def by_topic_in_version_1(cluster: Any) -> None:
    await cluster.zk(SetData("/config/topics/t", ON))
    await notify(cluster, b'{"version":1,"entity_type":"topics","entity_name":"t"}')


async def by_cluster(cluster: Any) -> None:
    await cluster.zk(Create("/config/brokers/<default>", ON))
    await notify(cluster, b'{"version":2,"entity_path":"brokers/<default>"}')


async def by_broker(cluster: Any) -> None:
    await cluster.zk(Create("/config/brokers/100", ON))
    await notify(cluster, b'{"version":2,"entity_path":"brokers/100"}')


async def by_request(cluster: Any) -> None:
    resource = {"resource_type": 2, "resource_name": "t",
                "configs": [{"name": UNCLEAN, "config_operation": 0, "value": "true"}]}  # fmt: skip
    answer = await cluster.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource]})
    assert answer["responses"][0]["error_code"] == 0


async def by_election(cluster: Any) -> None:
    body = {"election_type": 1, "timeout": 5_000, "topic_partitions": [{"topic": "t", "partitions": [0]}]}
    answer = await cluster.ask(ApiKey.ELECT_LEADERS, 2, body)
    assert answer["replica_election_results"][0]["partition_result"][0]["error_code"] == 0


FORMS = [by_topic, by_topic_in_version_1, by_cluster, by_broker, by_request, by_election]


@pytest.mark.parametrize("switch_on", FORMS, ids=lambda form: form.__name__)
def test_unclean_election_is_switched_on(play: Play, switch_on: Callable[..., Any]) -> None:
    async def scenario(cluster: Any) -> None:
        await leaderless(cluster)
        await switch_on(cluster)
        await cluster.world.until(lambda: leads(cluster), within_s=10, what="an unclean leader")
        assert cluster.controller.state.unclean_elections == 1

    play(scenario, brokers=2)


def test_a_topic_may_forbid_what_the_cluster_permits(play: Play) -> None:
    async def scenario(cluster: Any) -> None:
        await leaderless(cluster)
        off = ON.replace(b"true", b"false")
        await cluster.zk(SetData("/config/topics/t", off))
        await by_cluster(cluster)
        await cluster.world.sleep(5)
        assert not leads(cluster)
        assert cluster.controller.state.settings.unclean_leader_election_enable

    play(scenario, brokers=2)


@pytest.mark.parametrize("static", ["false", "true"])
@pytest.mark.parametrize("at_start", [False, True], ids=["in office", "by a new process"])
def test_the_controllers_own_configs_decide_before_those_of_the_cluster_and_those_before_its_file(
    play: Play, at_start: bool, static: str
) -> None:
    """They are followed as they come, change and go, from any two to any other two. A new process reads them, though
    no notice is left that tells of them."""

    async def scenario(cluster: Any) -> None:
        levels = list(product(("true", "false", None), repeat=2))
        for own, default in levels if at_start else chain.from_iterable(product(levels, repeat=2)):
            if at_start:
                await cluster.machine.run(cluster.controller.stop())
            await configure(cluster, "100", own, is_told=not at_start)
            await configure(cluster, "<default>", default, is_told=not at_start)
            if at_start:
                cluster.controller = cluster.make()
                await cluster.machine.run(cluster.controller.start())
            await cluster.world.sleep(1)
            expected = next(value for value in (own, default, static) if value is not None)
            found = cluster.controller.state.settings.unclean_leader_election_enable
            assert found is (expected == "true"), (own, default)

    play(scenario, brokers=1, settings={UNCLEAN: static})


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("fails", ["its session ends", "it is refused"])
@pytest.mark.parametrize("path", ["/config/brokers/100", "/config/brokers/<default>", "/config/changes"])
def test_a_new_process_reads_what_stands_whatever_becomes_of_its_first_looks(
    play: Play, path: str, fails: str, times: int
) -> None:
    """No notice is left that tells of it; those that come later are followed."""

    async def scenario(cluster: Any) -> None:
        zookeeper, failed = cluster.world.zookeeper, 0

        def fail(op: Any) -> ZkCode | None:
            nonlocal failed
            if failed == times or not isinstance(op, GetData | GetChildren) or op.path != path:
                return None
            failed += 1
            if fails == "it is refused":
                return ZkCode.NO_AUTH
            asyncio.get_running_loop().call_soon(zookeeper.expire_session, cluster.controller.zk.session_id)
            return None

        await cluster.machine.run(cluster.controller.stop())
        await cluster.zk(
            Create("/config/brokers/100", ConfigEntityZNode.encode({"log.retention.ms": "5"})),
            Create("/config/brokers/<default>", ON),
        )
        zookeeper.tree.refusal = fail
        cluster.controller = cluster.make()
        await cluster.machine.run(cluster.controller.start())
        for retention, unclean in (("5", "true"), ("6", "true"), ("6", "false")):
            await cluster.world.sleep(20)
            assert failed == times
            names = {"": UNCLEAN, "100": "log.retention.ms"}
            rows = [{"resource_type": 4, "resource_name": n, "configuration_keys": [names[n]]} for n in names]
            answer = await cluster.ask(ApiKey.DESCRIBE_CONFIGS, 1, {"resources": rows})
            assert [row["value"] for each in answer["results"] for row in each["configs"]] == [unclean, retention]
            assert cluster.controller.state.settings.unclean_leader_election_enable is (unclean == "true")
            if retention == "5":
                await cluster.zk(SetData("/config/brokers/100", ConfigEntityZNode.encode({"log.retention.ms": "6"})))
                await notify(cluster, b'{"version":2,"entity_path":"brokers/100"}')
            else:
                await configure(cluster, "<default>", "false", is_told=True)

    play(scenario, brokers=1)


async def configure(cluster: Any, broker: str, unclean: str | None, *, is_told: bool) -> None:
    """As AlterConfigs writes it. What stands there already is not written, nor told, again."""
    path, config = f"/config/brokers/{broker}", {} if unclean is None else {UNCLEAN: unclean}
    data, before = json.dumps({"version": 1, "config": config}).encode(), await cluster.read(path)
    if before != data:
        await cluster.zk(Create(path, data) if before is None else SetData(path, data))
        if is_told:
            await notify(cluster, f'{{"version":2,"entity_path":"brokers/{broker}"}}'.encode())


#: What is written, one after the other, and how many events follow: whatever wakes leaderless partitions reads much.
TOPICS_SAY = [("true", 1), ("true", 1), (" TRUE ", 1), ("false", 0), ("", 0), ("yes", 0), (None, 0)]
ALL_BROKERS_SAY = [(None, 0), ("true", 1), ("true", 0), (" TRUE ", 0), ("false", 1), (None, 0), ("true", 1), (None, 1)]


@pytest.mark.parametrize(
    ("entity", "event_type", "said"),
    [
        ("topics/t", "TopicUncleanLeaderElectionEnable", TOPICS_SAY),
        ("brokers/<default>", "UncleanLeaderElectionEnable", ALL_BROKERS_SAY),
        ("brokers/100", "UncleanLeaderElectionEnable", ALL_BROKERS_SAY),
        ("brokers/1", "UncleanLeaderElectionEnable", [(value, 0) for value, _ in ALL_BROKERS_SAY]),
    ],
)
def test_only_what_lets_more_be_elected_is_an_event(
    play: Play, entity: str, event_type: str, said: list[tuple[str | None, int]]
) -> None:
    """Of a topic that is switched on; of brokers what makes a difference, either way."""

    async def scenario(cluster: Any) -> None:
        path = f"/config/{entity}"
        await cluster.zk(Create(path))
        for nth, (value, _) in enumerate(said):
            other = {} if value is None else {UNCLEAN: value}
            await cluster.zk(SetData(path, ConfigEntityZNode.encode({"retention.ms": str(nth), **other})))
            await notify(cluster, f'{{"version":2,"entity_path":"{entity}"}}'.encode())
            await cluster.world.sleep(1)

    lines = play(scenario, brokers=1)
    assert ev.CONFIG_CHANGED in {line["event"] for line in lines} or entity == "brokers/1"
    processed = [line["event_type"] for line in lines if line["event"] == ev.CONTROLLER_EVENT_PROCESSED]
    unclean = [event for event in processed if "Unclean" in event]
    assert unclean == [event_type] * sum(events for _, events in said)


ASIDE: list[tuple[str, bytes | None]] = [
    ("nothing", None),
    ("no JSON", b"{"),
    ("another version", b'{"version":3,"entity_path":"topics/t"}'),
    ("no entity", b'{"version":2}'),
    ("a path", b'{"version":2,"entity_path":"topics/../brokers"}'),
    ("no name", b'{"version":2,"entity_path":"topics/"}'),
    ("a long name", b'{"version":2,"entity_path":"topics/' + b"x" * 300 + b'"}'),
]


@pytest.mark.parametrize(("_", "data"), ASIDE, ids=[row[0] for row in ASIDE])
def test_a_notice_that_cannot_be_is_left_aside_and_the_next_one_counts(play: Play, _: str, data: bytes | None) -> None:
    async def scenario(cluster: Any) -> None:
        await leaderless(cluster)
        await notify(cluster, data)
        await by_topic(cluster)
        await cluster.world.until(lambda: leads(cluster), within_s=10, what="an unclean leader")

    lines = play(scenario, brokers=2)
    assert [line["reason"] for line in lines if line["event"] == ev.CONFIG_REFUSED]


def test_a_change_is_not_lost_with_the_session_in_which_it_was_seen(play: Play) -> None:
    """The session ends between the notice and the look at the configs: the next session looks again."""

    async def scenario(cluster: Any) -> None:
        await leaderless(cluster)
        controller = cluster.controller
        ended = False

        def end_the_session(op: Any) -> ZkCode | None:
            nonlocal ended
            if not ended and isinstance(op, GetData) and op.path == "/config/brokers/<default>":
                ended = True
                cluster.world.zookeeper.expire_session(controller.state.session_id)
            return None

        cluster.world.zookeeper.tree.refusal = end_the_session
        await by_cluster(cluster)
        await cluster.world.until(
            lambda: controller.state.settings.unclean_leader_election_enable, within_s=20, what="the new default"
        )
        assert ended

    play(scenario, brokers=2)


def test_what_other_hands_wrote_wrongly_for_brokers_stands_in_nobodys_way(play: Play) -> None:
    """Brokers pass it over, too; else no topic could be created, and no such setting altered."""

    async def scenario(cluster: Any) -> None:
        wrong = {
            "log.retention.hours": "x",
            "num.io.threads": "many",
            "log.cleaner.threads": "",
            "log.retention.minutes": "5",
        }
        await cluster.zk(Create("/config/brokers/<default>", ConfigEntityZNode.encode(wrong)))
        await notify(cluster, b'{"version":2,"entity_path":"brokers/<default>"}')
        await cluster.world.sleep(1)
        rows = [{"name": "t", "num_partitions": 1, "replication_factor": 1}]
        created = await cluster.ask(ApiKey.CREATE_TOPICS, 5, {"topics": rows, "timeout": 5_000})
        assert created["topics"][0]["error_code"] == 0
        change = {"resource_type": 4, "resource_name": "", "configs": [{"name": "num.io.threads", "value": "9"}]}
        altered = await cluster.ask(ApiKey.ALTER_CONFIGS, 1, {"resources": [change], "validate_only": False})
        assert altered["responses"][0]["error_code"] == 0

    logs = play(scenario)
    refused = [line["reason"] for line in logs if line["event"] == ev.CONFIG_REFUSED]
    assert refused == [
        "Invalid value x for configuration log.retention.hours: Not a number of type INT",
        "Invalid value many for configuration num.io.threads: Not a number of type INT",
        "Invalid value  for configuration log.cleaner.threads: Not a number of type INT",
        "Non-dynamic configs configured in ZooKeeper will be ignored: Set(log.retention.minutes)",
    ]


def test_old_notices_are_deleted(play: Play) -> None:
    async def scenario(cluster: Any) -> None:
        await notify(cluster, b'{"version":2,"entity_path":"topics/t"}')
        await cluster.world.sleep(16 * 60)
        await notify(cluster, b'{"version":2,"entity_path":"topics/t"}')
        await cluster.world.sleep(1)
        (listed,) = await cluster.zk(GetChildren("/config/changes"))
        assert len(listed.children) == 1

    play(scenario, brokers=1)


def test_only_the_broker_that_is_meant_takes_a_change(play: Play) -> None:
    async def scenario(cluster: Any) -> None:
        await cluster.zk(Create("/config/brokers/1", ON))
        await notify(cluster, b'{"version":2,"entity_path":"brokers/1"}')
        await cluster.world.sleep(2)
        assert not cluster.controller.state.settings.unclean_leader_election_enable
        assert BrokerId(1) in cluster.controller.state.live_brokers

    play(scenario, brokers=1)


def test_notices_that_cannot_be_listed_are_listed_again(play: Play) -> None:
    async def scenario(cluster: Any) -> None:
        tree = cluster.world.zookeeper.tree
        path = "/config/changes"
        tree.refusal = lambda op: ZkCode.OTHER if isinstance(op, GetChildren) and op.path == path else None
        await notify(cluster, b"")
        await by_cluster(cluster)
        await cluster.world.sleep(5)
        assert not cluster.controller.state.settings.unclean_leader_election_enable
        tree.refusal = lambda _: None
        await cluster.world.sleep(5)
        assert cluster.controller.state.settings.unclean_leader_election_enable

    lines = play(scenario, brokers=1)
    refused = [line["reason"] for line in lines if line["event"] == ev.ZK_READ_REFUSED]
    assert set(refused) == {"/config/changes cannot be read: OTHER"}


def test_configs_that_cannot_be_read_stay_as_they_were(play: Play) -> None:
    async def scenario(cluster: Any) -> None:
        await by_cluster(cluster)
        await cluster.world.sleep(1)
        cluster.world.zookeeper.tree.refusal = lambda op: (
            ZkCode.NO_AUTH if isinstance(op, GetData) and op.path == "/config/brokers/<default>" else None
        )
        await notify(cluster, b'{"version":2,"entity_path":"brokers/<default>"}')
        await cluster.world.sleep(1)
        assert cluster.controller.state.settings.unclean_leader_election_enable
        cluster.world.zookeeper.tree.refusal = lambda _: None
        await cluster.zk(SetData("/config/brokers/<default>", b'{"version":1,"config":{}}'))
        await cluster.world.sleep(2)
        assert not cluster.controller.state.settings.unclean_leader_election_enable, "asked until it can be read"

    lines = play(scenario, brokers=1)
    assert "/config/brokers/<default> cannot be read: NO_AUTH" in [
        line.get("reason") for line in lines if line["event"] == ev.CONFIG_REFUSED
    ]


@pytest.mark.parametrize("end", ["9" * 5_000, "x", "", "²"], ids=["a huge number", "a letter", "nothing", "a power"])
def test_a_child_that_is_no_notice_is_left_alone(play: Play, end: str) -> None:
    async def scenario(cluster: Any) -> None:
        await cluster.zk(Create(f"/config/changes/config_change_{end}", b"{}"))
        await by_cluster(cluster)
        await cluster.world.sleep(1)
        assert cluster.controller.state.settings.unclean_leader_election_enable

    play(scenario, brokers=1)


def test_a_notice_is_read_once_and_deleted_when_it_is_old(play: Play) -> None:
    async def scenario(cluster: Any) -> None:
        reads: list[str] = []

        def note(op: Any) -> None:
            if isinstance(op, GetData) and op.path.startswith("/config/changes/"):
                reads.append(op.path)

        cluster.world.zookeeper.tree.refusal = note
        for _ in range(5):
            await notify(cluster, b'{"version":2,"entity_path":"brokers/<default>"}')
            await cluster.world.sleep(1)
        assert len(reads) == len(set(reads)) == 5
        await cluster.world.sleep(CHANGE_EXPIRATION_MS / 1000)
        await notify(cluster, b'{"version":2,"entity_path":"brokers/<default>"}')
        await cluster.world.sleep(1)
        assert len(cluster.world.zookeeper.tree.get("/config/changes").children) == 1

    play(scenario, brokers=1)


@pytest.mark.parametrize("is_gone_for_s", [0, 5], ids=["at once", "after a while"])
def test_notices_whose_parent_was_removed_and_made_anew_are_followed(play: Play, is_gone_for_s: float) -> None:
    """The new parent numbers from 0 again, and a list that is not there arms no watch."""

    async def scenario(cluster: Any) -> None:
        for _ in range(3):
            await notify(cluster, b'{"version":2,"entity_path":"brokers/1"}')
        await cluster.world.sleep(1)
        (listed,) = await cluster.zk(GetChildren("/config/changes"))
        assert len(listed.children) == 3
        gone = [*(Delete(f"/config/changes/{child}") for child in listed.children), Delete("/config/changes")]
        if is_gone_for_s:
            await cluster.zk(*gone)
            await cluster.world.sleep(is_gone_for_s)
            gone = []
        await cluster.zk(*gone, Create("/config/changes"), Create("/config/brokers/<default>", ON))
        await notify(cluster, b'{"version":2,"entity_path":"brokers/<default>"}')
        await cluster.world.sleep(3)
        assert cluster.controller.state.settings.unclean_leader_election_enable

    play(scenario, brokers=1)
