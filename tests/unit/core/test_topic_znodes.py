"""Whatever the controller writes into the znode of a topic, what it does not mean to change stays."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from controller.wire.zk_operations import Delete, GetData, SetData
from tests.worlds.stage import TP, Stage, move_to

PATH = "/brokers/topics/t"
KEPT = {"topic_id": "jLFmdEvyc0jNaA60SaJ1Mg", "of_tomorrow": 5}


def with_topic(*brokers: int, **partitions: list[int]) -> Stage:
    stage = Stage()
    stage.broker_starts(*brokers)
    stage.make("/config/topics/t", b'{"version":1,"config":{}}')
    others_write(stage, {"version": 3, "partitions": partitions, **KEPT})
    stage.start()
    stage.take_lines()
    return stage


def others_write(stage: Stage, znode: dict[str, Any]) -> None:
    stage.make(PATH, json.dumps({"adding_replicas": {}, "removing_replicas": {}, **znode}).encode())


def content(stage: Stage) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(stage.tree.read(GetData(PATH)).data or b"{}")
    return found


def a_move() -> Stage:
    stage = with_topic(1, 2, 3, **{"0": [1, 2]})
    move_to(stage, 3, 2)
    stage.leader_writes(TP, (1, 2, 3))
    stage.run()
    assert content(stage)["partitions"] == {"0": [3, 2]}
    return stage


def a_topic_in_deletion_that_grows() -> Stage:
    """5 is not there: the deletion waits for it."""
    stage = with_topic(1, 2, **{"0": [1, 2], "1": [5]})
    stage.make("/admin/delete_topics/t")
    stage.new_controller()
    stage.start()
    now = content(stage)
    stage.others_write(SetData(PATH, json.dumps(now | {"partitions": {**now["partitions"], "7": [1]}}).encode()))
    stage.run()
    assert set(content(stage)["partitions"]) == {"0"}, "1 never had a leader, nor a znode"
    return stage


def replicas_on_a_controller() -> Stage:
    stage = Stage()
    stage.broker_starts(1, 2)
    stage.start()
    stage.make("/config/topics/t", b'{"version":1,"config":{}}')
    others_write(stage, {"version": 3, "partitions": {"0": [1, 100]}, **KEPT})
    stage.run()
    assert content(stage)["partitions"] == {"0": [1, 2]}
    return stage


def somebody_who_knows_no_ids() -> Stage:
    stage = with_topic(1, 2, **{"0": [1, 2]})
    now = content(stage)
    now.pop("topic_id")
    others_write(stage, now)
    stage.run()
    return stage


OCCASIONS: list[Callable[[], Stage]] = [
    a_move,
    a_topic_in_deletion_that_grows,
    replicas_on_a_controller,
    somebody_who_knows_no_ids,
]


@pytest.mark.parametrize("occasion", OCCASIONS, ids=[each.__name__ for each in OCCASIONS])
def test_the_id_and_what_nobody_here_understands_stay(occasion: Callable[[], Stage]) -> None:
    stage = occasion()
    written = [line for line in stage.take_lines() if line.startswith(f"zk   set {PATH} ")]
    assert written, "the controller has written it"
    for line in written:
        told = json.loads(line.partition(f"{PATH} ")[2])
        assert {name: told.get(name) for name in KEPT} == KEPT
    assert {name: content(stage).get(name) for name in KEPT} == KEPT


@pytest.mark.parametrize("ends", ["deleted", "removed by hand"])
def test_a_topic_of_the_same_name_is_another(ends: str) -> None:
    """It is made by somebody who knows no ids: none is given to it, nor anything else that the former one had."""
    stage = with_topic(1, 2, 3, **{"0": [1, 2]})
    if ends == "deleted":
        stage.make("/admin/delete_topics/t")
        stage.run()
    else:
        for below in ("/partitions/0/state", "/partitions/0", "/partitions", ""):
            stage.others_write(Delete(PATH + below))
        stage.run()
    assert not stage.exists(PATH) and not stage.state.topics
    stage.topic("t", p0=(1, 2))
    stage.run()
    stage.others_write(SetData(PATH, json.dumps(content(stage) | {"version": 2}).encode()))  # it is looked at again
    stage.run()
    assert KEPT.keys().isdisjoint(content(stage))
    move_to(stage, 3, 2)
    assert KEPT.keys().isdisjoint(content(stage))
