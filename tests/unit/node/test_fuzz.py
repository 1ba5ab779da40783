"""Whatever a request says: the controller answers or closes that connection, keeps the office, and serves on.

A few examples in the plain run, many by name: `pytest -m slow tests/unit/node/test_fuzz.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from controller.node.requests.table import APIS
from controller.wire import log_events as ev
from controller.wire import protocol
from controller.wire.protocol import ApiKey
from controller.wire.types import BrokerId, ReplicaAssignment
from controller.wire.zk_operations import Create
from controller.wire.znodes import TopicAssignment, TopicZNode
from tests.worlds.fuzz import few, many, takes_long
from tests.worlds.requests import requests

Play = Callable[..., list[Any]]
FEW = few(10)
MANY = many(3_000)
#: What may be said of the topic `t` so that it is not what it was.
ALTERED = (ApiKey.DELETE_TOPICS, ApiKey.CREATE_PARTITIONS, ApiKey.ALTER_PARTITION_REASSIGNMENTS)
TOPIC = TopicAssignment(partitions={0: ReplicaAssignment(replicas=(BrokerId(1), BrokerId(2)))})
Drawn = list[tuple[ApiKey, int, dict[str, Any]]]


def check(play: Play, limits: settings) -> None:
    @limits
    @given(st.lists(requests({key: api.versions for key, api in APIS.items()}), min_size=4, max_size=12))
    def run(drawn: Drawn) -> None:
        async def scenario(cluster: Any) -> None:
            await cluster.zk(Create(TopicZNode.path("t"), TopicZNode.encode(TOPIC)))
            await cluster.world.sleep(1)
            for api_key, version, body in drawn:
                with suppress(OSError, protocol.ProtocolError, TimeoutError):  # refused by its connection
                    await cluster.ask(api_key, version, body, timeout_s=3_000)
            await cluster.world.sleep(40)
            state = cluster.controller.state
            assert state.serving and state.epoch == 1
            assert (await cluster.ask(ApiKey.API_VERSIONS, 0, {}))["error_code"] == 0
            kinds = {api_key for api_key, _, _ in drawn}
            if ApiKey.CONTROLLED_SHUTDOWN in kinds:
                return  # then a broker that lives counts as leaving
            topic = {"name": "sound", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
            answer = await cluster.ask(ApiKey.CREATE_TOPICS, 2, {"topics": [topic], "timeout": 9_000})
            assert [each["error_code"] for each in answer["topics"]] == [0]
            if kinds.isdisjoint(ALTERED):
                found = json.loads(await cluster.read("/brokers/topics/t/partitions/0/state"))
                assert {1, 2} == set(found["isr"]), "nobody was asked to touch it"

        lines = play(scenario, brokers=2)
        harm = {ev.TASK_FAILED, ev.CONTROLLER_FAULTED}
        assert [line for line in lines if line["event"] in harm] == []

    run()


def test_every_field_of_every_request(play: Play) -> None:
    check(play, FEW)


@takes_long
def test_every_field_of_every_request_for_long(play: Play) -> None:
    check(play, MANY)
