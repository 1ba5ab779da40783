"""What a controller answers to who takes it for one more broker, in full."""

from __future__ import annotations

import asyncio
from dataclasses import fields
from types import SimpleNamespace
from typing import Any

import pytest

from controller.core.settings import ControllerSettings
from controller.core.state import ClusterState
from controller.node.requests import any_node
from controller.node.requests.context import Node
from controller.rules.hashing import group_partition
from controller.wire.errors import ErrorCode, KafkaError
from controller.wire.protocol import ApiKey, Request
from controller.wire.types import Broker, BrokerId, Endpoint, LeaderAndIsr, ReplicaAssignment, TopicPartition
from controller.wire.znodes import TopicAssignment

TOPIC, PARTITIONS = "__consumer_offsets", 8
INSIDE, OUTSIDE = (Endpoint(host="b", port=n, listener=name) for n, name in ((1, "INSIDE"), (2, "OUTSIDE")))


def asked(**body: Any) -> Request:
    return Request(ApiKey.FIND_COORDINATOR, 3, 1, None, SimpleNamespace(**body))


def node(state: ClusterState, **parts: Any) -> Node:
    """Without what is not needed."""
    return Node(**(dict.fromkeys(each.name for each in fields(Node)) | {"state": state, "listener": "INSIDE"} | parts))


def state_with(leader: int | None, *brokers: Broker, of: str = TOPIC) -> ClusterState:
    """In office; the groups' topic is led by that one where the group is, and by 9, who is dead, where it is not."""
    state = ClusterState(BrokerId(100), ControllerSettings())
    state.office_won(1, 1)
    for broker in brokers:
        state.broker_registered(broker)
    replicas = ReplicaAssignment(replicas=(BrokerId(1), BrokerId(9)))
    state.topic_learnt(of, TopicAssignment(partitions=dict.fromkeys(range(PARTITIONS), replicas)))
    for p in range(PARTITIONS):
        leads = leader if p == group_partition("g", PARTITIONS) else 9
        isr = (BrokerId(1), BrokerId(9))
        state.lead(TopicPartition(of, p), LeaderAndIsr(leader=None if leads is None else BrokerId(leads), isr=isr))
    return state


ONE = Broker(broker_id=BrokerId(1), endpoints=(OUTSIDE, INSIDE))
COORDINATORS: list[tuple[str, ClusterState, dict[str, Any] | None]] = [
    ("it leads", state_with(1, ONE), {"node_id": 1, "host": "b", "port": 1}),
    ("nobody leads", state_with(None, ONE), None),
    ("its leader is dead", state_with(9, ONE), None),
    ("it is not reached here", state_with(1, Broker(broker_id=BrokerId(1), endpoints=(OUTSIDE,))), None),
    ("there is no topic", state_with(1, ONE, of="another"), None),
    ("this one is not in office", ClusterState(BrokerId(100), ControllerSettings()), None),
]


class Topic:
    """Whom it was to ask."""

    def __init__(self) -> None:
        self.of: list[tuple[str, list[Broker]]] = []

    async def ask_for(self, group: str, brokers: list[Broker]) -> None:
        self.of.append((group, brokers))


@pytest.mark.parametrize(("state", "expected"), [row[1:] for row in COORDINATORS], ids=[row[0] for row in COORDINATORS])
def test_the_coordinator_of_a_group_leads_its_partition_or_is_not_known(
    state: ClusterState, expected: dict[str, Any] | None
) -> None:
    topic = Topic()
    question = any_node.handle_find_coordinator(node(state, groups_topic=topic), asked(key="g", key_type=0))
    if expected is not None:
        assert asyncio.run(question) == expected
    else:
        with pytest.raises(KafkaError) as refused:
            asyncio.run(question)
        assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert [brokers for _, brokers in topic.of if brokers] == ([[ONE]] if "another" in state.topics else [])


class Ids:
    """Takes one."""

    async def take(self) -> int:
        return 7


def test_what_it_has_none_of() -> None:
    of = node(ClusterState(BrokerId(100), ControllerSettings()), producer_ids=Ids())

    def answered(handle: Any, **body: Any) -> Any:
        return asyncio.run(handle(of, asked(**body)))

    assert answered(any_node.handle_list_groups) == {"groups": []}
    empty = {"error_code": ErrorCode.NONE, "log_dir": "(none)", "topics": []}
    assert answered(any_node.handle_describe_log_dirs, topics=None) == {"results": [empty]}
    first = answered(any_node.handle_init_producer_id, transactional_id=None)
    assert first == {"producer_id": 7, "producer_epoch": 0}


def test_refusals_name_nobody_and_nothing() -> None:
    request, code = asked(), ErrorCode.UNKNOWN_SERVER_ERROR
    nobody = {"error_code": code, "error_message": "no", "node_id": -1, "host": "", "port": -1}
    assert any_node.find_coordinator_failed(request, code, "no") == nobody
    no_id = {"error_code": code, "producer_id": -1, "producer_epoch": -1}
    assert any_node.init_producer_id_failed(request, code, "no") == no_id
    assert any_node.code_only_failed(request, code, "no") == {"error_code": code}
    assert any_node.describe_log_dirs_failed(request, code, "no") == {"results": []}


LED = {0: 1, 1: None}


@pytest.mark.parametrize(
    ("partitions", "all_led"), [((0,), True), ((), True), ((1,), False), ((0, 1), False), ((2,), False)]
)
def test_a_topic_is_made_when_each_partition_has_a_leader(partitions: tuple[int, ...], all_led: bool) -> None:
    state = ClusterState(BrokerId(100), ControllerSettings())
    for p, leader in LED.items():
        state.lead(TopicPartition("t", p), LeaderAndIsr(leader=BrokerId(leader) if leader else None, isr=()))
    assert node(state).has_leaders("t", partitions) is all_led
