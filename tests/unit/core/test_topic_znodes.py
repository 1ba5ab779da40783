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


#: How the znode comes to what is kept: by what stood there before besides its partitions, None where nothing did.
CAME: dict[str, dict[str, Any] | None] = {
    "made with it": None,
    "it came later": {},
    "it took the place of another": {"topic_id": "AAAAAAAAAAAAAAAAAAAAAA", "of_tomorrow": [1], "of_yesterday": True},
}


def with_topic(*brokers: int, came: str = "made with it", **partitions: list[int]) -> Stage:
    stage, before = Stage(), CAME[came]
    stage.broker_starts(*brokers)
    stage.make("/config/topics/t", b'{"version":1,"config":{}}')
    if before is not None:
        others_write(stage, {"version": 3, "partitions": partitions, **before})
        stage.start()
    others_write(stage, {"version": 3, "partitions": partitions, **KEPT})
    stage.run() if before is not None else stage.start()
    stage.take_lines()
    return stage


def others_write(stage: Stage, znode: dict[str, Any]) -> None:
    stage.make(PATH, json.dumps({"adding_replicas": {}, "removing_replicas": {}, **znode}).encode())


def content(stage: Stage) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(stage.tree.read(GetData(PATH)).data or b"{}")
    return found


def a_move(came: str) -> Stage:
    stage = with_topic(1, 2, 3, came=came, **{"0": [1, 2]})
    move_to(stage, 3, 2)
    stage.leader_writes(TP, (1, 2, 3))
    stage.run()
    assert content(stage)["partitions"] == {"0": [3, 2]}
    return stage


def a_topic_in_deletion_that_grows(came: str) -> Stage:
    """5 is not there: the deletion waits for it."""
    stage = with_topic(1, 2, came=came, **{"0": [1, 2], "1": [5]})
    stage.make("/admin/delete_topics/t")
    if came == "made with it":
        stage.new_controller()
        stage.start()
    stage.run()
    grow(stage, content(stage))
    return stage


def a_topic_in_deletion_that_grows_with_it(came: str) -> Stage:
    """One and the same write adds the partition, and what is kept."""
    stage = Stage()
    stage.broker_starts(1, 2)
    stage.make("/config/topics/t", b'{"version":1,"config":{}}')
    others_write(stage, {"version": 3, "partitions": {"0": [1, 2], "1": [5]}, **(CAME[came] or {})})
    stage.start()
    stage.make("/admin/delete_topics/t")
    stage.run()
    stage.take_lines()
    grow(stage, {"version": 3, "partitions": {"0": [1, 2], "1": [5]}, **KEPT})
    return stage


def a_topic_in_deletion_that_somebody_grows_who_knows_no_ids(came: str) -> Stage:
    stage = with_topic(1, 2, came=came, **{"0": [1, 2], "1": [5]})
    stage.make("/admin/delete_topics/t")
    stage.run()
    now = content(stage)
    now.pop("topic_id")
    grow(stage, now)
    return stage


def grow(stage: Stage, now: dict[str, Any]) -> None:
    stage.others_write(SetData(PATH, json.dumps(now | {"partitions": {**now["partitions"], "7": [1]}}).encode()))
    stage.run()
    assert set(content(stage)["partitions"]) == {"0"}, "1 never had a leader, nor a znode"


def a_topic_that_grows(came: str) -> Stage:
    """And moves then, so that it is written."""
    stage = with_topic(1, 2, 3, came=came, **{"0": [1, 2]})
    others_write(stage, content(stage) | {"partitions": {"0": [1, 2], "1": [2, 1]}})
    stage.run()
    move_to(stage, 3, 2)
    assert set(content(stage)["partitions"]) == {"0", "1"}
    return stage


def replicas_on_a_controller(_: str) -> Stage:
    """They are looked for once, when the topic is there for the first time."""
    stage = Stage()
    stage.broker_starts(1, 2)
    stage.start()
    stage.make("/config/topics/t", b'{"version":1,"config":{}}')
    others_write(stage, {"version": 3, "partitions": {"0": [1, 100]}, **KEPT})
    stage.run()
    assert content(stage)["partitions"] == {"0": [1, 2]}
    return stage


def somebody_who_knows_no_ids(came: str) -> Stage:
    stage = with_topic(1, 2, came=came, **{"0": [1, 2]})
    now = content(stage)
    now.pop("topic_id")
    others_write(stage, now)
    stage.run()
    return stage


OCCASIONS: list[Callable[[str], Stage]] = [
    a_move,
    a_topic_in_deletion_that_grows,
    a_topic_in_deletion_that_grows_with_it,
    a_topic_in_deletion_that_somebody_grows_who_knows_no_ids,
    a_topic_that_grows,
    replicas_on_a_controller,
    somebody_who_knows_no_ids,
]


@pytest.mark.parametrize("came", CAME)
@pytest.mark.parametrize("occasion", OCCASIONS, ids=[each.__name__ for each in OCCASIONS])
def test_the_id_and_what_nobody_here_understands_stay(occasion: Callable[[str], Stage], came: str) -> None:
    stage = occasion(came)
    written = [line for line in stage.take_lines() if line.startswith(f"zk   set {PATH} ")]
    assert written, "the controller has written it"
    for line in written:
        told = json.loads(line.partition(f"{PATH} ")[2])
        assert {name: told.get(name) for name in KEPT} == KEPT
        assert "of_yesterday" not in told, "what others took out does not come back"
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


def test_what_others_take_out_does_not_come_back() -> None:
    stage = with_topic(1, 2, 3, **{"0": [1, 2]})
    others_write(stage, {"version": 3, "partitions": content(stage)["partitions"], "topic_id": KEPT["topic_id"]})
    stage.run()
    move_to(stage, 3, 2)
    assert content(stage)["adding_replicas"] == {"0": [3]} and "of_tomorrow" not in content(stage)
