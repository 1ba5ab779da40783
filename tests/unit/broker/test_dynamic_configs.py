"""Settings that change while brokers run: they count after the notice, everywhere, until they are taken back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from controller.rules.configs.broker import ALTERABLE, check_broker_change, documentation, is_sensitive, synonyms_of
from controller.rules.configs.topic import BrokerLevels
from controller.wire import log_events as ev
from controller.wire.control import LeaderAndIsrEntry, StopReplicaEntry, UpdateMetadataEntry
from controller.wire.errors import ErrorCode, KafkaError
from controller.wire.protocol import ApiKey
from controller.wire.records import build_values
from controller.wire.types import BrokerId, LeaderAndIsr, ReplicaAssignment, TopicPartition
from controller.wire.zk_operations import Create, SetData
from controller.wire.znodes import ConfigChangesZNode, ConfigEntityZNode
from tests.worlds.alterations import check_alterations

SET, DELETE = 0, 1
TOPIC, BROKER = 2, 4


async def alter(cluster: Any, broker: int, kind: int, name: str, key: str, value: str | None) -> None:
    configs = [{"name": key, "config_operation": DELETE if value is None else SET, "value": value}]
    body = {"resources": [{"resource_type": kind, "resource_name": name, "configs": configs}]}
    answer = await cluster.call(broker, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, body)
    assert answer.responses[0].error_code == 0, answer.responses[0].error_message
    await cluster.world.sleep(1)


def test_whatever_stands_there_becomes_what_was_asked_for(in_memory: Any) -> None:
    async def scenario(cluster: Any) -> None:
        async def ask(api: ApiKey, body: dict[str, Any]) -> Any:
            (row,) = (await cluster.call(1, api, 1, body)).responses
            return row.error_code

        await cluster.start(1)
        await cluster.create_topic("t", [(1,)])
        await check_alterations(cluster.world.zookeeper.tree, ask, own=1)

    in_memory(scenario)


def log_config(name: str) -> Callable[[Any], Any]:
    def read(broker: Any) -> Any:
        log = broker.context.replicas.table.dirs.get(TopicPartition("t", 0))
        return getattr(log.config, name)

    return read


def setting(name: str) -> Callable[[Any], Any]:
    return lambda broker: getattr(broker.context.replicas.table.settings, name)


#: (setting, value, how it is seen at a broker, what is seen)
EFFECTS: list[tuple[str, str, Callable[[Any], Any], Any]] = [
    ("log.retention.ms", "1000", log_config("retention_ms"), 1000),
    ("log.retention.bytes", "5", log_config("retention_bytes"), 5),
    ("log.segment.bytes", "4096", log_config("segment_bytes"), 4096),
    ("log.roll.ms", "77", log_config("segment_ms"), 77),
    ("log.cleanup.policy", "compact", log_config("cleanup_policy"), "compact"),
    ("log.index.interval.bytes", "9", log_config("index_interval_bytes"), 9),
    ("log.segment.delete.delay.ms", "1", log_config("file_delete_delay_ms"), 1),
    ("log.message.timestamp.type", "LogAppendTime", log_config("message_timestamp_type"), "LogAppendTime"),
    ("message.max.bytes", "123", log_config("max_message_bytes"), 123),
    ("compression.type", "lz4", log_config("compression_type"), "lz4"),
    ("min.insync.replicas", "2", log_config("min_insync_replicas"), 2),
    ("producer.id.expiration.ms", "5", setting("producer_id_expiration_ms"), 5),
    ("num.replica.fetchers", "2", setting("num_replica_fetchers"), 2),
    ("log.cleaner.backoff.ms", "5", setting("log_cleaner_backoff_ms"), 5),
    ("log.cleaner.io.max.bytes.per.second", "5", setting("log_cleaner_io_max_bytes_per_second"), 5.0),
    ("max.connections", "5", lambda broker: broker.server.limits.max_connections, 5),
    ("max.connections.per.ip.overrides", "h:5", lambda broker: dict(broker.server.limits.overrides), {"h": 5}),
    *[
        (key, value, (lambda broker, side=side: getattr(broker.context.replicas.table, side).bound), int(value))
        for key, side in (
            ("leader.replication.throttled.rate", "leader_quota"),
            ("follower.replication.throttled.rate", "follower_quota"),
            ("replica.alter.log.dirs.io.max.bytes.per.second", "alter_log_dirs_quota"),
        )
        for value in ("5", "0")
    ],
]


@pytest.mark.parametrize(("key", "value", "seen", "wanted"), EFFECTS, ids=[f"{row[0]}={row[1]}" for row in EFFECTS])
def test_it_counts_for_one_broker_or_for_all_until_it_is_taken_back(
    in_memory: Any, key: str, value: str, seen: Callable[[Any], Any], wanted: Any
) -> None:
    async def scenario(cluster: Any) -> None:
        brokers = [await cluster.start(number) for number in (1, 2)]
        await cluster.create_topic("t", [(1, 2)])
        before = [seen(broker) for broker in brokers]
        assert wanted not in before
        await alter(cluster, 1, BROKER, "", key, value)
        assert [seen(broker) for broker in brokers] == [wanted, wanted]
        await alter(cluster, 1, BROKER, "", key, None)
        assert [seen(broker) for broker in brokers] == before
        await alter(cluster, 2, BROKER, "2", key, value)
        assert [seen(broker) for broker in brokers] == [before[0], wanted]
        again = await cluster.start(3)
        assert again.context.configs.dynamic == {}

    in_memory(scenario)


def test_a_topics_own_setting_counts_more_than_its_brokers(in_memory: Any) -> None:
    async def scenario(cluster: Any) -> None:
        broker = await cluster.start(1)
        await cluster.create_topic("t", [(1,)])
        seen = log_config("max_message_bytes")
        await alter(cluster, 1, TOPIC, "t", "max.message.bytes", "10")
        await alter(cluster, 1, BROKER, "1", "message.max.bytes", "20")
        assert seen(broker) == 10
        produced = await cluster.call(1, ApiKey.PRODUCE, 8, produce_body())
        assert produced.responses[0].partition_responses[0].error_code == ErrorCode.MESSAGE_TOO_LARGE
        await alter(cluster, 1, TOPIC, "t", "max.message.bytes", None)
        assert seen(broker) == 20
        await alter(cluster, 1, BROKER, "1", "message.max.bytes", None)
        produced = await cluster.call(1, ApiKey.PRODUCE, 8, produce_body())
        assert produced.responses[0].partition_responses[0].error_code == ErrorCode.NONE

    in_memory(scenario)


#: Each of the eight states of three settings once, where one changes at a time: of one topic, of one broker, of all
#: brokers. Of two other topics one has no config, the other one of another setting, which changes, too.
STEPS = ["all", "broker", "all", "topic", "all", "broker", "all"]
SIZES = {"topic": 10, "broker": 20, "all": 30, "file": 40}


@pytest.mark.parametrize("order", [("topic", "broker", "all"), ("broker", "all", "topic"), ("all", "topic", "broker")])
def test_of_a_topics_settings_the_nearest_counts_whichever_changed_last(in_memory: Any, order: tuple[str, ...]) -> None:
    """Its own, else the broker's, else that of all brokers, else what the broker was started with."""
    where = {
        "topic": (TOPIC, "t", "max.message.bytes"),
        "broker": (BROKER, "1", "message.max.bytes"),
        "all": (BROKER, "", "message.max.bytes"),
    }
    renamed = dict(zip(("topic", "broker", "all"), order, strict=True))

    async def scenario(cluster: Any) -> None:
        dirs = (await cluster.start(1, properties={"message.max.bytes": "40"})).context.replicas.table.dirs
        for topic in ("t", "none", "other"):
            await cluster.create_topic(topic, [(1,), (1,)])
        are_set: set[str] = set()
        for number, step in enumerate(STEPS, 5):
            await alter(cluster, 1, TOPIC, "other", "retention.ms", str(number))
            are_set ^= {changed := renamed[step]}
            await alter(cluster, 1, *where[changed], str(SIZES[changed]) if changed in are_set else None)
            near = {topic: are_set if topic == "t" else are_set - {"topic"} for topic in ("t", "none", "other")}
            for topic, layers in near.items():
                size = next(SIZES[layer] for layer in SIZES if layer in layers or layer == "file")
                found = [dirs.get(TopicPartition(topic, partition)).config for partition in (0, 1)]
                assert [config.max_message_bytes for config in found] == [size] * 2, (topic, changed, are_set)
                assert (found[0].retention_ms == number) is (topic == "other")

    in_memory(scenario)


@pytest.mark.parametrize("is_kept", [False, True], ids=["deleted here", "its replica is kept"])
@pytest.mark.parametrize("after", [{}, {"max.message.bytes": "20"}], ids=["none", "another value"])
def test_a_topic_that_comes_back_has_the_configs_of_then(
    in_memory: Any, after: dict[str, str], *, is_kept: bool
) -> None:
    """No notice tells of configs that a topic is created with."""

    async def scenario(cluster: Any) -> None:
        broker = await cluster.start(1)
        await cluster.create_topic("t", [(1,)])
        seen, path = log_config("max_message_bytes"), ConfigEntityZNode.path("topics/t")
        of_the_broker = seen(broker)
        await alter(cluster, 1, TOPIC, "t", "max.message.bytes", "10")
        assert seen(broker) == 10
        state = LeaderAndIsr(leader=BrokerId(1), isr=(BrokerId(1),))
        gone = UpdateMetadataEntry(
            topic_partition=TopicPartition("t", 0), state=state, replicas=(BrokerId(1),), being_deleted=True
        )
        await cluster.update_metadata(1, [gone])
        if not is_kept:
            stop = StopReplicaEntry(topic_partition=TopicPartition("t", 0), leader_epoch=-2, delete_partition=True)
            await cluster.stop_replica(1, [stop])
        await cluster.in_broker(1, broker.zk.perform([SetData(path, ConfigEntityZNode.encode(after))]))
        await cluster.world.sleep(1)
        await cluster.create_topic("t", [(1,)], leader_epoch=1)
        assert seen(broker) == (20 if after else of_the_broker)

    in_memory(scenario)


def test_a_topic_that_went_unseen_and_comes_back_has_the_configs_of_then(in_memory: Any) -> None:
    """The broker was told of the former one by LeaderAndIsr alone, so that no UpdateMetadata tells it that it went."""

    async def scenario(cluster: Any) -> None:
        broker = await cluster.start(1)
        topic_partition, path = TopicPartition("t", 0), ConfigEntityZNode.path("topics/t")
        of_then = ConfigEntityZNode.encode({"max.message.bytes": "10"})
        await cluster.in_broker(1, broker.zk.perform([Create(path, of_then)]))
        entry = LeaderAndIsrEntry(
            topic_partition=topic_partition,
            state=LeaderAndIsr(leader=BrokerId(1), isr=(BrokerId(1),)),
            assignment=ReplicaAssignment(replicas=(BrokerId(1),)),
            is_new=True,
        )
        await cluster.leader_and_isr(1, [entry])
        seen = log_config("max_message_bytes")
        assert seen(broker) == 10
        stop = StopReplicaEntry(topic_partition=topic_partition, leader_epoch=-2, delete_partition=True)
        await cluster.stop_replica(1, [stop])
        await cluster.in_broker(1, broker.zk.perform([SetData(path, ConfigEntityZNode.encode({}))]))
        await cluster.leader_and_isr(1, [entry])
        assert seen(broker) > 10

    in_memory(scenario)


def produce_body() -> dict[str, Any]:
    records = build_values([(b"k", b"v")], timestamp=1)
    topics = [{"name": "t", "partition_data": [{"index": 0, "records": records}]}]
    return {"acks": -1, "timeout": 1000, "topic_data": topics}


def test_followers_go_on_after_the_number_of_fetchers_changed(in_memory: Any) -> None:
    async def scenario(cluster: Any) -> None:
        for number in (1, 2):
            await cluster.start(number)
        await cluster.create_topic("t", [(1, 2)] * 4)
        await alter(cluster, 2, BROKER, "2", "num.replica.fetchers", "2")
        fetchers = cluster.brokers[2].context.replicas.fetchers._fetchers
        assert {number for _, number in fetchers} == {0, 1}
        produced = await cluster.call(1, ApiKey.PRODUCE, 8, produce_body())
        assert produced.responses[0].partition_responses[0].error_code == ErrorCode.NONE

    in_memory(scenario)


@pytest.mark.parametrize("asked", range(1, 25, 2))
def test_a_session_that_ends_while_a_broker_starts_takes_no_later_change_along(in_memory: Any, asked: int) -> None:
    """It ends when the broker has asked for so many znodes of configs; the watch for new notices was armed in it."""

    async def scenario(cluster: Any) -> None:
        await cluster.start(1)
        for value in "3456":
            await alter(cluster, 1, BROKER, "", "log.cleaner.backoff.ms", value)
        zookeeper, count = cluster.world.zookeeper, 0

        def count_and_end(op: Any) -> None:
            nonlocal count
            count += getattr(op, "path", "").startswith("/config/")
            if count == asked:
                (session,) = [each for each, machine in zookeeper.connected.items() if machine == "broker-2"]
                cluster.world.loop.call_soon(zookeeper.expire_session, session)
                zookeeper.tree.refusal = lambda op: None

        zookeeper.tree.refusal = count_and_end
        broker = await cluster.start(2)
        await cluster.world.sleep(5)
        assert broker.zk.expirations == int(count == asked)
        await alter(cluster, 1, BROKER, "", "log.cleaner.backoff.ms", "9")
        assert setting("log_cleaner_backoff_ms")(broker) == 9

    in_memory(scenario)


@pytest.mark.parametrize("asked", range(1, 23, 2))
def test_a_change_that_comes_while_a_broker_starts_counts(in_memory: Any, asked: int) -> None:
    """It comes when the broker has asked for so many znodes of configs."""

    async def scenario(cluster: Any) -> None:
        await cluster.start(1)
        for value in "3456":
            await alter(cluster, 1, BROKER, "", "log.cleaner.backoff.ms", value)
        zookeeper, count, other = cluster.world.zookeeper, 0, cluster.brokers[1].zk.session
        default = ConfigEntityZNode.path("brokers/<default>")
        notice = ConfigChangesZNode.encode("brokers/<default>")
        changes = (
            SetData(default, ConfigEntityZNode.encode({"log.cleaner.backoff.ms": "9"})),
            Create(ConfigChangesZNode.sequence_path, notice, sequence=True),
        )

        def count_and_change(op: Any) -> None:
            nonlocal count
            count += getattr(op, "path", "").startswith("/config/")
            if count == asked:
                zookeeper.tree.refusal = lambda op: None
                for change in changes:
                    cluster.world.loop.call_soon(zookeeper.perform, other, change)

        zookeeper.tree.refusal = count_and_change
        broker = await cluster.start(2)
        await cluster.world.sleep(5)
        assert setting("log_cleaner_backoff_ms")(broker) == 9

    in_memory(scenario)


def test_what_other_hands_wrote_wrongly_is_left_out_with_a_word(in_memory: Any) -> None:
    async def scenario(cluster: Any) -> None:
        broker = await cluster.start(1)
        path = ConfigEntityZNode.path("brokers/1")
        data = ConfigEntityZNode.encode(
            {
                "log.retention.ms": "soon",
                "max.connections": "-1",
                "max.connections.per.ip": "7",
                "replica.lag.time.max.ms": "5",
                "log.dirs": "/x",
                "log.retention.hours": "1",
            }
        )
        notice = Create(ConfigChangesZNode.sequence_path, ConfigChangesZNode.encode("brokers/1"), sequence=True)
        with capture_logs() as lines:
            await cluster.in_broker(1, broker.zk.perform([Create(path, data), SetData(path, data), notice]))
            await cluster.world.sleep(1)
        refused = [line["reason"] for line in lines if line["event"] == ev.CONFIG_REFUSED]
        assert refused == [
            "Invalid value soon for configuration log.retention.ms: Not a number of type LONG",
            "Invalid value -1 for configuration max.connections: Value must be at least 0",
            "Non-dynamic configs configured in ZooKeeper will be ignored: "
            "Set(log.dirs, log.retention.hours, replica.lag.time.max.ms)",
        ]
        assert broker.server.limits.max_connections_per_ip == 7
        assert broker.context.configs.dynamic == {"max.connections.per.ip": "7"}
        assert broker.context.replicas.table.settings.replica_lag_time_max_ms == 30_000

    in_memory(scenario)


def test_quotas_of_clients_are_named_as_what_they_are_not(in_memory: Any) -> None:
    async def scenario(cluster: Any) -> None:
        broker = await cluster.start(1)
        notice = Create(ConfigChangesZNode.sequence_path, ConfigChangesZNode.encode("clients/c"), sequence=True)
        with capture_logs() as lines:
            await cluster.in_broker(1, broker.zk.perform([notice]))
            await cluster.world.sleep(1)
        refused = [line for line in lines if line["event"] == ev.CONFIG_REFUSED]
        assert [line["reason"] for line in refused] == ["quotas of clients are not part of this broker"]

    in_memory(scenario)


@pytest.mark.parametrize(
    ("entity_path", "counts"),
    [("brokers/1", True), ("brokers/<default>", True), ("brokers/2", False), ("users/1", False), ("ips/1", False),
     ("clients/<default>", False), ("topics/1", False), ("hosts/1", False), ("brokers", False)],
)  # fmt: skip
def test_a_notice_counts_for_whom_it_names(in_memory: Any, entity_path: str, counts: bool) -> None:
    """What was written and not announced yet counts for nobody."""

    async def scenario(cluster: Any) -> None:
        broker = await cluster.start(1)
        own, data = ConfigEntityZNode.broker(BrokerId(1)), ConfigEntityZNode.encode({"max.connections.per.ip": "7"})
        notice = Create(ConfigChangesZNode.sequence_path, ConfigChangesZNode.encode(entity_path), sequence=True)
        with capture_logs() as lines:
            await cluster.in_broker(1, broker.zk.perform([Create(own, data), SetData(own, data), notice]))
            await cluster.world.sleep(1)
        assert broker.context.configs.dynamic == ({"max.connections.per.ip": "7"} if counts else {})
        refused = [line["entity_path"] for line in lines if line["event"] == ev.CONFIG_REFUSED]
        is_quota = entity_path.partition("/")[0] in ("users", "clients", "ips")
        assert refused == ([entity_path] if is_quota else [])

    in_memory(scenario)


NOTHING_SET = BrokerLevels(dynamic={}, dynamic_default={}, static={})
REFUSED = [
    ({"broker.id": "1"}, "Cannot update these configs dynamically: Set(broker.id)"),
    ({"log.dirs": "x", "broker.id": "1"}, "Cannot update these configs dynamically: Set(broker.id, log.dirs)"),
    ({"listeners": "x"}, "Cannot update these configs dynamically: Set(listeners)"),
    ({"num.io.threads": "17"}, "should not be greater than double the current value 8"),
    ({"num.io.threads": "3"}, "should be at least half the current value 8"),
    ({"log.cleaner.threads": "200"}, "log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread"),
    ({"max.connections.per.ip.overrides": "h"}, "'h' is not of the form host:count"),
    ({"min.insync.replicas": "0"}, "Value must be at least 1"),
    ({"unclean.leader.election.enable": "yes"}, "Expected value to be either true or false"),
]


@pytest.mark.parametrize(("configs", "message"), REFUSED, ids=[" ".join(row[0]) for row in REFUSED])
def test_what_cannot_change_is_refused_in_kafkas_words(configs: dict[str, str], message: str) -> None:
    with pytest.raises(KafkaError) as caught:
        check_broker_change(configs, NOTHING_SET, of_one=True)
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    assert message in str(caught.value)


def test_what_a_plugin_may_know_is_let_through_and_hidden() -> None:
    check_broker_change({"my.plugin.secret": "x", "num.io.threads": "16"}, NOTHING_SET, of_one=True)
    assert is_sensitive("my.plugin.secret")
    assert is_sensitive("ssl.key.password")
    assert not is_sensitive("log.dirs")


def test_every_setting_that_may_change_has_a_text_and_itself_among_its_synonyms() -> None:
    assert all(documentation(name) for name in ALTERABLE)
    assert all(name in synonyms_of(name) for name in ALTERABLE)
    assert synonyms_of("log.retention.ms") == ("log.retention.ms", "log.retention.minutes", "log.retention.hours")


@pytest.mark.parametrize("is_new", [True, False])
def test_throttles_that_were_there_before_a_broker_started_count(in_memory: Any, is_new: bool) -> None:
    """Notices go after a quarter of an hour, moves take longer. A new topic's lists count once they are altered."""
    lists = {"leader.replication.throttled.replicas": "0:1", "follower.replication.throttled.replicas": "*"}

    async def scenario(cluster: Any) -> None:
        broker = await cluster.start(1)
        path, data = ConfigEntityZNode.path("topics/t"), ConfigEntityZNode.encode(lists)
        await cluster.in_broker(1, broker.zk.perform([Create(path, data)]))
        await cluster.create_topic("t", [(1,)], is_new=is_new)
        table = broker.context.replicas.table
        quotas = (table.leader_quota, table.follower_quota)
        assert [quota.is_throttled(TopicPartition("t", 0)) for quota in quotas] == [not is_new] * 2
        notice = Create(ConfigChangesZNode.sequence_path, ConfigChangesZNode.encode("topics/t"), sequence=True)
        await cluster.in_broker(1, broker.zk.perform([notice]))
        await cluster.world.sleep(1)
        assert [quota.is_throttled(TopicPartition("t", 0)) for quota in quotas] == [True] * 2

    in_memory(scenario)


def test_throttles_of_a_topic_that_has_been_read_count_once_they_are_announced_whoever_comes_to_be_hosted(
    in_memory: Any,
) -> None:
    async def scenario(cluster: Any) -> None:
        broker = await cluster.start(1)
        await cluster.create_topic("t", [(1,)])
        lists = ConfigEntityZNode.encode({"leader.replication.throttled.replicas": "*"})
        path = ConfigEntityZNode.path("topics/t")
        await cluster.in_broker(1, broker.zk.perform([Create(path, lists), SetData(path, lists)]))
        state = LeaderAndIsr(leader=BrokerId(1), isr=(BrokerId(1),))
        placed = ReplicaAssignment(replicas=(BrokerId(1),))
        older = LeaderAndIsrEntry(topic_partition=TopicPartition("t", 1), state=state, assignment=placed, is_new=False)
        await cluster.leader_and_isr(1, [older])
        quota = broker.context.replicas.table.leader_quota
        assert not quota.is_throttled(TopicPartition("t", 1))
        notice = Create(ConfigChangesZNode.sequence_path, ConfigChangesZNode.encode("topics/t"), sequence=True)
        await cluster.in_broker(1, broker.zk.perform([notice]))
        await cluster.world.sleep(1)
        assert quota.is_throttled(TopicPartition("t", 1))

    in_memory(scenario)
