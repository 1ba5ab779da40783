"""Bytes per second between brokers, from two looks at the sizes of logs."""

from __future__ import annotations

from controller.ui.flows import Flows
from controller.wire.types import BrokerId, TopicPartition

A, B = TopicPartition("a", 0), TopicPartition("b", 0)
LEADERS = {A: BrokerId(1), B: BrokerId(2)}


def seen(*looks: tuple[int, float, dict[TopicPartition, int]]) -> Flows:
    flows = Flows()
    for broker, at_s, sizes in looks:
        flows.look(BrokerId(broker), at_s, sizes, LEADERS.get)
    return flows


def test_growth_is_the_leaders_on_followers_and_clients_on_leaders() -> None:
    flows = seen((1, 0, {A: 0, B: 0}), (2, 0, {A: 0, B: 50}), (1, 2, {A: 400, B: 20}), (2, 4, {A: 400, B: 90}))
    assert flows.of(BrokerId(1)) == {"from": {"2": 10}, "to": {"2": 100}, "clients": 200}
    assert flows.of(BrokerId(2)) == {"from": {"1": 100}, "to": {"1": 10}, "clients": 10}


def test_before_a_second_look_and_of_a_broker_that_is_silent_nothing_is_known() -> None:
    flows = seen((1, 0, {A: 0}))
    assert flows.of(BrokerId(1)) is None
    flows.look(BrokerId(1), 1, {A: 1}, LEADERS.get)
    flows.forget(BrokerId(1))
    assert flows.of(BrokerId(1)) is None


def test_what_shrinks_or_has_no_leader_flows_from_nowhere_and_a_new_replica_from_its_leader() -> None:
    lone = TopicPartition("lone", 0)
    flows = seen((2, 0, {B: 100, lone: 0}), (2, 1, {B: 10, lone: 99, A: 7}))
    assert flows.of(BrokerId(2)) == {"from": {"1": 7}, "to": {}, "clients": 0}


def test_what_a_reassignment_adds_is_counted_on_both_sides() -> None:
    flows = Flows()
    stays = TopicPartition("stays", 0)
    leaders = {**LEADERS, stays: BrokerId(1)}
    before, after = {A: 0, B: 0, stays: 0}, {A: 60, B: 8, stays: 50}
    for broker, at_s, sizes, added in ((1, 0, {A: 100}, ()), (2, 0, before, (A,)), (2, 2, after, (A,))):
        flows.look(BrokerId(broker), at_s, sizes, leaders.get, added)
    assert flows.moved(BrokerId(2)) == {"in": 30, "out": 0}
    assert flows.moved(BrokerId(1)) == {"in": 0, "out": 30}
    flows.forget(BrokerId(2))
    assert flows.moved(BrokerId(1)) == {"in": 0, "out": 0}


def test_a_throttle_that_lets_bursts_through_is_shown_by_its_mean() -> None:
    """Sizes of a follower of Kafka 4.1 under a throttle of 500 kB/s, each 3 s: see the module's first words."""
    flows = Flows()
    sizes = [
        0,
        5061146,
        5061146,
        5061146,
        5061146,
        15585630,
        15585630,
        15585630,
        15585630,
        21567078,
        21567078,
        21567078,
    ]
    seen = []
    for look, size in enumerate(sizes):
        flows.look(BrokerId(2), 3 * look, {A: size}, LEADERS.get, (A,))
        seen.append(flows.moved(BrokerId(1))["out"])
    assert seen[-3:] == [798_781, 718_903, 550_198], "over 27 s, 30 s, and the last 30 s, without the first burst"
    flows.look(BrokerId(2), 36, {A: 30_000_000}, LEADERS.get, ())
    assert flows.moved(BrokerId(1)) == {"in": 0, "out": 0}, "nothing is moved any more"
