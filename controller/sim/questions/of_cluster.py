"""Who is there, who leads, who coordinates: Metadata, DescribeCluster, FindCoordinator; elections, and moves that are
not needed or cannot be.

Source: spec broker.md §8.1, §8.2, §16.6 to §16.9, clients.md §6; Kafka 3.9 `KafkaApis`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from controller.sim.cluster import Cluster
from controller.sim.questions.inquiry import ASKED, IMPOSSIBLE, MISSING, Inquiry, optional
from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey
from controller.wire.types import GROUP_METADATA_TOPIC

INTERNAL: Final = frozenset({"__consumer_offsets", "__transaction_state"})
#: What everybody may do with a topic, with a cluster: bits of `AclOperation`; and what is said to who does not ask.
MAY_WITH_TOPIC, MAY_WITH_CLUSTER, NOT_ASKED = 3576, 8096, -(2**31)
RACKS_FROM, CLUSTER_ID_FROM, OFFLINE_FROM, EPOCHS_FROM, MAY_FROM = 1, 2, 5, 7, 8


async def metadata(inquiry: Inquiry) -> None:
    """Each broker, and the controller, tells of all topics what ZooKeeper has. Who has been away may know more, as in
    Kafka: a partition of a former topic (`brokers.metadata_is_zookeepers`)."""
    for number in (*inquiry.brokers, inquiry.controller()):
        version = inquiry.chance.randint(0, 9)
        asks = inquiry.chance.random() < 0.5
        body: dict[str, Any] = {
            "topics": None if version else [],
            "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": asks,
            "include_cluster_authorized_operations": asks,
        }
        answer = await inquiry.ask(number, ApiKey.METADATA, version, body)
        what, right = f"Metadata {version} of {number}", _Right(inquiry.cluster, number, version)
        right.expect_head(inquiry, what, answer, asks=asks)
        rows = {row.name: row for row in answer.topics}
        for topic in right.topics():
            there = inquiry.cluster.topic_partitions(topic)
            found = topic_row(rows[topic], version, there) if topic in rows else None
            inquiry.expect(f"{what} about {topic}", found, right.topic(topic, asks=asks))


async def metadata_of_some(inquiry: Inquiry) -> None:
    """Of named topics each gets its row; who is not there an error, and is not made."""
    for number in (inquiry.chance.choice(inquiry.brokers), inquiry.controller()):
        version = inquiry.chance.randint(4, 9)
        head = _Right(inquiry.cluster, number, version)
        names = [*inquiry.chance.sample(head.topics(), 1), MISSING, IMPOSSIBLE]
        body = {"topics": [{"name": name} for name in names], "allow_auto_topic_creation": False}
        answer = await inquiry.ask(number, ApiKey.METADATA, version, body)
        there = set(inquiry.cluster.topic_partitions(names[0]))
        found = {
            row.name: (ErrorCode.of(row.error_code), len({int(p.partition_index) for p in row.partitions} & there))
            for row in answer.topics
        }
        right = {
            names[0]: (ErrorCode.NONE, len(there)),
            MISSING: (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0),
            IMPOSSIBLE: (ErrorCode.INVALID_TOPIC_EXCEPTION, 0),
        }
        what = f"Metadata {version} of {number} about {names}"
        head.expect_head(inquiry, what, answer, asks=False)
        inquiry.expect(what, found, right)
        inquiry.expect(f"whether {what} makes a topic", MISSING in inquiry.cluster.children("/brokers/topics"), False)


async def describe_cluster(inquiry: Inquiry) -> None:
    """The same brokers, in other words."""
    for number in (*inquiry.brokers, inquiry.controller()):
        version, asks = inquiry.chance.randint(0, 1), inquiry.chance.random() < 0.5
        body = {"include_cluster_authorized_operations": asks, "endpoint_type": 1}
        answer = await inquiry.ask(number, ApiKey.DESCRIBE_CLUSTER, version, body)
        right = _Right(inquiry.cluster, number, MAY_FROM)
        found = answer.cluster_id, int(answer.controller_id), answer.cluster_authorized_operations
        head = right.cluster_id(), right.controller_id(), right.may(MAY_WITH_CLUSTER, asks=asks)
        inquiry.expect(f"DescribeCluster of {number}", found, head)
        rows = [(int(row.broker_id), row.host, row.port, row.rack) for row in answer.brokers]
        inquiry.expect(f"DescribeCluster of {number}", rows, right.brokers())


async def find_coordinator(inquiry: Inquiry) -> None:
    """The leader of the partition of the groups' topic that the group's name leads to, wherever one asks."""
    count = len(inquiry.cluster.topic_partitions(GROUP_METADATA_TOPIC))
    for number in (*inquiry.brokers, inquiry.controller()):
        group, version = f"group-{inquiry.chance.randrange(10**6)}", inquiry.chance.randint(0, 3)
        state = inquiry.cluster.state(GROUP_METADATA_TOPIC, java_hash(group) % count)
        answer = await inquiry.ask(number, ApiKey.FIND_COORDINATOR, version, {"key": group, "key_type": 0})
        found = answer.error_code, int(answer.node_id), answer.host, answer.port
        right = 0, state["leader"], f"broker-{state['leader']}", inquiry.cluster.port(state["leader"])
        inquiry.expect(f"FindCoordinator {version} of {number} for {group}", found, right)


def java_hash(text: str) -> int:
    """`String.hashCode` without its sign, as coordinators are chosen by. Of ASCII."""
    found = 0
    for letter in text:
        found = (31 * found + ord(letter)) & 0xFFFFFFFF
    return found & 0x7FFFFFFF


async def elections(inquiry: Inquiry) -> None:
    """Preferred leaders are elected where others lead, and lead when that is answered; of an election that is not
    needed hears who asked for it by name. An unclean one is needed nowhere."""
    cluster, kind = inquiry.cluster, inquiry.chance.randint(0, 1)
    named = [*cluster.partitions()[-3:], (MISSING, 0), (cluster.partitions()[0][0], 99)]
    for chosen in (named, None):
        partitions = cluster.partitions() if chosen is None else named[:-2]
        needed = {tp for tp in partitions if kind == 0 and _leader(cluster, tp) != cluster.assignment(*tp)[0]}
        right = dict.fromkeys(named[-2:] if chosen else (), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        right |= dict.fromkeys(partitions if chosen else (), ErrorCode.ELECTION_NOT_NEEDED)
        right |= dict.fromkeys(needed, ErrorCode.NONE)
        inquiry.expect(f"an election of type {kind} of {chosen}", await _elected(inquiry, kind, chosen), right)
        late = [tp for tp in needed if _leader(cluster, tp) != cluster.assignment(*tp)[0]]
        inquiry.expect("who does not lead when an election is answered", late, [])


def _leader(cluster: Cluster, tp: tuple[str, int]) -> int:
    return int(cluster.state(*tp)["leader"])


async def _elected(
    inquiry: Inquiry, kind: int, chosen: list[tuple[str, int]] | None
) -> dict[tuple[str, int], ErrorCode]:
    rows = None if chosen is None else [{"topic": topic, "partitions": [number]} for topic, number in chosen]
    body = {"election_type": kind, "topic_partitions": rows, "timeout": 10_000}
    answer = await inquiry.ask_office(ApiKey.ELECT_LEADERS, inquiry.chance.randint(1, 2), body)
    inquiry.expect_code("ElectLeaders", answer.error_code)
    return {
        (topic.topic, int(row.partition_id)): ErrorCode.of(row.error_code)
        for topic in answer.replica_election_results
        for row in topic.partition_result
    }


async def moves(inquiry: Inquiry) -> None:
    """None is under way: none is listed, none can be cancelled; and some cannot be asked for."""
    topic, number = inquiry.chance.choice([tp for tp in inquiry.cluster.partitions() if tp[0] not in INTERNAL])
    named = [{"name": topic, "partition_indexes": [number]}]
    for topics in (None, named):
        body: dict[str, Any] = {"topics": topics, "timeout": 5_000}
        answer = await inquiry.ask_office(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, body)
        inquiry.expect("ListPartitionReassignments", (answer.error_code, list(answer.topics)), (0, []))
    now = inquiry.cluster.assignment(topic, number)
    for replicas, right in (
        (None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
        ([], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([*now, now[0]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([*now, 99], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (now, ErrorCode.NONE),
    ):
        found = await _move(inquiry, topic, number, replicas)
        inquiry.expect_code(f"a move of {topic}-{number} from {now} to {replicas}", found, right)
    missing = await _move(inquiry, MISSING, 0, now)
    inquiry.expect_code("a move of what is not there", missing, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    inquiry.expect("who has the replicas after moves that are none", inquiry.cluster.assignment(topic, number), now)


async def _move(inquiry: Inquiry, topic: str, number: int, replicas: list[int] | None) -> int:
    rows = [{"name": topic, "partitions": [{"partition_index": number, "replicas": replicas}]}]
    inquiry.cluster.moves_of_others += 1
    body = {"timeout": 5_000, "topics": rows}
    answer = await inquiry.ask_office(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, body)
    return int(answer.responses[0].partitions[0].error_code)


async def moved(inquiry: Inquiry) -> None:
    """A partition goes where it is asked to go; while it goes that is listed to who asks for all, or for it."""
    cluster, chance = inquiry.cluster, inquiry.chance
    now = cluster.assignment(ASKED, 0)
    others = [number for number in inquiry.brokers if number != now[0]]
    target = [now[0], *chance.sample(others, chance.randint(0, min(2, len(others))))]  # its leader stays
    code = await _move(inquiry, ASKED, 0, target)
    inquiry.expect_code(f"a move of {ASKED}-0 from {now} to {target}", code)
    none = await inquiry.ask_office(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, {"topics": [], "timeout": 5_000})
    inquiry.expect("which moves of no topic are listed", list(none.topics), [])
    listed = await inquiry.ask_office(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, {"topics": None, "timeout": 5_000})
    rows = [(topic.name, int(row.partition_index)) for topic in listed.topics for row in topic.partitions]
    inquiry.expect("which moves of others are listed", [row for row in rows if row != (ASKED, 0)], [])

    async def there() -> object:
        state, content = cluster.state(ASKED, 0), cluster.content_of(ASKED)
        left = {**(content["adding_replicas"] or {}), **(content["removing_replicas"] or {})}
        return cluster.assignment(ASKED, 0), sorted(state["isr"]), state["leader"] in target, left

    await inquiry.becomes("who has the replicas then", there, (target, sorted(target), True, {}))


async def another_office(inquiry: Inquiry) -> None:
    """Brokers pass on what is for the controller, to whoever is in office then."""
    cluster = inquiry.cluster
    if len(cluster.controllers) == 1:
        return
    await _passed_on(inquiry)
    server, former = cluster.world.zookeeper, inquiry.controller()
    server.expire_sessions_of(cluster.machine(former).name)

    async def is_heard_of() -> object:
        in_office = cluster.active_controller()
        found = {broker.context.metadata.controller_id for broker in cluster.brokers.values()}
        return in_office is not None and found == {in_office}

    await inquiry.becomes("whether all brokers know of a new office", is_heard_of, True)
    await _passed_on(inquiry)


async def _passed_on(inquiry: Inquiry) -> None:
    for number in inquiry.brokers:
        answer = await inquiry.ask(number, ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, {"topics": None, "timeout": 5_000})
        inquiry.expect_code(f"what {number} passes on", answer.error_code)


class _Right:
    """What one node has to tell of the cluster, in one version of Metadata."""

    def __init__(self, cluster: Cluster, number: int, version: int) -> None:
        self._cluster, self._number, self._version = cluster, number, version
        #: A controller lists itself beside the brokers; brokers list it to nobody, and name themselves for it.
        self._is_controller = number in cluster.controller_ids

    def cluster_id(self) -> str:
        """Of all nodes."""
        return str(self._cluster.znode("/cluster/id")["id"])

    def controller_id(self) -> int | None:
        """Whom clients are to ask."""
        return self._cluster.active_controller() if self._is_controller else self._number

    def brokers(self) -> list[tuple[int, str, int, str | None]]:
        """(id, host, port, rack) of each, by id."""
        found: list[tuple[int, str, int, str | None]] = []
        for number in sorted(self._cluster.registered()):
            rack, port = self._cluster.znode(f"/brokers/ids/{number}").get("rack"), self._cluster.port(number)
            found.append((number, f"broker-{number}", port, rack if self._version >= RACKS_FROM else None))
        if self._is_controller:
            found.append((self._number, f"controller-{self._number}", self._cluster.port(self._number), None))
        return found

    def may(self, operations: int, *, asks: bool) -> int:
        """What whoever asks for it may do; a controller does not say."""
        return operations if asks and not self._is_controller else NOT_ASKED

    def topics(self) -> list[str]:
        """Those with partitions, sorted."""
        return sorted({topic for topic, _ in self._cluster.partitions()})

    def topic(self, name: str, *, asks: bool) -> tuple[object, ...]:
        """As `topic_row` has it."""
        partitions = {number: self._partition(name, number) for number in self._cluster.topic_partitions(name)}
        may = self.may(MAY_WITH_TOPIC, asks=asks) if self._version >= MAY_FROM else None
        return 0, name in INTERNAL if self._version >= RACKS_FROM else None, may, partitions

    def _partition(self, topic: str, number: int) -> tuple[object, ...]:
        state, version = self._cluster.state(topic, number), self._version
        return (
            *(0, state["leader"], state["leader_epoch"] if version >= EPOCHS_FROM else None),
            *(self._cluster.assignment(topic, number), state["isr"], [] if version >= OFFLINE_FROM else None),
        )

    def expect_head(self, inquiry: Inquiry, what: str, answer: Any, *, asks: bool) -> None:
        """All but the topics."""
        found = [(int(row.node_id), row.host, row.port, optional(row, "rack")) for row in answer.brokers]
        inquiry.expect(what, sorted(found), self.brokers())
        if self._version >= RACKS_FROM:
            inquiry.expect(what, int(answer.controller_id), self.controller_id())
        if self._version >= CLUSTER_ID_FROM:
            inquiry.expect(what, answer.cluster_id, self.cluster_id())
        if self._version >= MAY_FROM:
            inquiry.expect(what, answer.cluster_authorized_operations, self.may(MAY_WITH_CLUSTER, asks=asks))


def topic_row(row: Any, version: int, partitions: Collection[int]) -> tuple[object, ...]:
    """(error, is internal, what one may do, each of these partitions -> what is said of it); what a version does not
    have is None."""
    rows = {
        int(p.partition_index): (
            *(p.error_code, int(p.leader_id), optional(p, "leader_epoch") if version >= EPOCHS_FROM else None),
            *(list(map(int, p.replica_nodes)), list(map(int, p.isr_nodes))),
            list(p.offline_replicas) if version >= OFFLINE_FROM else None,
        )
        for p in row.partitions
        if p.partition_index in partitions
    }
    is_internal = row.is_internal if version >= RACKS_FROM else None
    may = row.topic_authorized_operations if version >= MAY_FROM else None
    return row.error_code, is_internal, may, rows
