"""Who copies what at which rate: the data plane on virtual time, without brokers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from broker_sim.fluid.copies import Copy
from broker_sim.fluid.limits import Limits
from broker_sim.fluid.plane import DataPlane
from controller.wire.types import BrokerId, TopicPartition
from controller.world.simulated.world import World, run_world

A, B, C = BrokerId(1), BrokerId(2), BrokerId(3)
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def play(scenario: Callable[[World, DataPlane, list[Copy]], Awaitable[None]]) -> None:
    async def main(world: World) -> None:
        changed: list[Copy] = []
        await scenario(world, DataPlane([A, B, C], on_change=changed.append), changed)

    run_world(1, main)


def copy_of(plane: DataPlane, tp: TopicPartition, leader: BrokerId, follower: BrokerId, position: float = 0.0) -> Copy:
    copy = Copy(topic_partition=tp, leader=leader, follower=follower, position=position, at_s=plane.now_s)
    plane.follow(copy)
    return copy


def test_a_copy_runs_at_the_link_and_then_follows_the_end() -> None:
    async def scenario(world: World, plane: DataPlane, changed: list[Copy]) -> None:
        plane.set_limits(B, Limits(link=100.0))
        plane.lead(P0, A, end=1000.0, ingress=10.0, egress=0.0)
        copy = copy_of(plane, P0, A, B)
        await world.sleep(5)
        assert copy.where(plane.now_s) == pytest.approx(500, abs=3)  # rates are those of before for 20 ms
        await world.sleep(6.5)  # 1000 bytes, 90 more a second than are written: 11.11 s
        assert copy.is_caught_up
        assert copy.where(plane.now_s) == pytest.approx(1000 + 10 * 11.5, abs=1)
        assert changed[-1] is copy

    play(scenario)


def test_two_copies_of_one_pair_share_it_and_another_pair_has_its_own() -> None:
    async def scenario(world: World, plane: DataPlane, _: list[Copy]) -> None:
        plane.set_limits(A, Limits(link=90.0))
        for tp in (P0, P1):
            plane.lead(tp, A, end=1e6, ingress=0.0, egress=0.0)
        rates = [copy_of(plane, P0, A, B), copy_of(plane, P1, A, B), copy_of(plane, P0, A, C)]
        await world.sleep(0.1)
        assert [copy.rate for copy in rates] == pytest.approx([22.5, 22.5, 45.0])

    play(scenario)


def test_a_limit_that_clients_alone_fill_does_not_hide_another_that_followers_fill() -> None:
    async def scenario(world: World, plane: DataPlane, _: list[Copy]) -> None:
        plane.lead(P0, A, end=0.0, ingress=1000.0, egress=0.0)
        plane.lead(P1, C, end=0.0, ingress=30.0, egress=0.0)
        copy = copy_of(plane, P1, C, B)
        await world.sleep(1)
        plane.set_limits(A, Limits(disk=10.0))
        plane.set_limits(B, Limits(disk=10.0))
        await world.sleep(10)
        assert not copy.is_caught_up
        assert copy.backlog(plane.now_s) == pytest.approx(10 * (30 - 10), abs=2)

    play(scenario)


def test_a_throttle_counts_those_in_sync_and_holds_back_the_others() -> None:
    async def scenario(world: World, plane: DataPlane, _: list[Copy]) -> None:
        plane.set_limits(B, Limits(follower_throttle=100.0))
        plane.lead(P0, A, end=0.0, ingress=30.0, egress=0.0)
        plane.lead(P1, A, end=1e6, ingress=0.0, egress=0.0)
        in_sync, behind = copy_of(plane, P0, A, B), copy_of(plane, P1, A, B)
        for copy in (in_sync, behind):
            plane.mark(copy, by_follower=True)
        await world.sleep(0.1)
        assert in_sync.is_caught_up
        # its fetcher has another partition that takes in records, and so tries again at once
        assert behind.rate == pytest.approx(70.0, rel=0.003)

    play(scenario)


def test_the_leaders_throttle_does_not_hold_back_a_member_of_the_isr() -> None:
    async def scenario(world: World, plane: DataPlane, _: list[Copy]) -> None:
        plane.set_limits(A, Limits(leader_throttle=10.0, link=1000.0))
        plane.lead(P0, A, end=1e6, ingress=0.0, egress=0.0)
        copy = copy_of(plane, P0, A, B)
        plane.mark(copy, by_leader=True, in_isr=True)
        await world.sleep(0.1)
        assert copy.rate == pytest.approx(1000.0)
        plane.mark(copy, in_isr=False)
        await world.sleep(0.1)
        assert copy.rate == pytest.approx(10.0 * 20 / 21)  # bursts every 0.5 s in windows of 10 s
        plane.set_rates(P0, ingress=1.0, egress=0.0)
        await world.sleep(0.1)
        assert copy.rate == pytest.approx(10.0, rel=0.003)  # each append looks again at the fetch that waits
        plane.set_rates(P0, ingress=0.0, egress=0.0)
        await world.sleep(0.1)
        assert copy.rate == pytest.approx(10.0 * 20 / 21)

    play(scenario)


def test_a_link_that_is_too_narrow_makes_followers_fall_behind() -> None:
    async def scenario(world: World, plane: DataPlane, changed: list[Copy]) -> None:
        plane.lead(P0, A, end=0.0, ingress=50.0, egress=0.0)
        copy = copy_of(plane, P0, A, B)
        await world.sleep(1)
        assert copy.is_caught_up
        plane.set_limits(B, Limits(link=20.0))
        await world.sleep(10)
        assert not copy.is_caught_up
        assert copy.backlog(plane.now_s) == pytest.approx(300, abs=2)
        assert changed[-1] is copy
        plane.set_limits(B, Limits())
        await world.sleep(1)
        assert copy.is_caught_up

    play(scenario)


def test_followers_wait_where_they_are_and_give_up_what_the_new_leader_lacks() -> None:
    async def scenario(world: World, plane: DataPlane, _: list[Copy]) -> None:
        plane.lead(P0, A, end=100.0, ingress=0.0, egress=0.0)
        copy = copy_of(plane, P0, A, B, position=100.0)
        await world.sleep(1)
        plane.unlead(P0)
        await world.sleep(5)
        assert (copy.where(plane.now_s), copy.is_caught_up) == (100.0, False)
        plane.unfollow(copy)
        plane.lead(P0, C, end=60.0, ingress=0.0, egress=0.0)
        again = copy_of(plane, P0, C, B, position=100.0)
        await world.sleep(1)
        assert (again.where(plane.now_s), again.is_caught_up) == (60.0, True)

    play(scenario)


def test_sums_of_what_is_in_use_equal_a_recount() -> None:
    async def scenario(world: World, plane: DataPlane, _: list[Copy]) -> None:
        plane.set_limits(B, Limits(link=40.0))
        plane.lead(P0, A, end=0.0, ingress=7.0, egress=3.0)
        plane.lead(P1, A, end=1e6, ingress=0.0, egress=0.0)
        copy_of(plane, P0, A, B), copy_of(plane, P0, A, C), copy_of(plane, P1, A, B)
        await world.sleep(1)
        plane.set_rates(P0, ingress=5.0, egress=3.0)
        use = plane.use()
        assert (use[A]["out"], use[A]["in"]) == pytest.approx((3 + 5 + 5 + 35, 5))
        assert (use[B]["in"], use[C]["in"]) == pytest.approx((40, 5))

    play(scenario)


def test_what_is_left_is_what_the_copies_lack_at_any_moment() -> None:
    async def scenario(world: World, plane: DataPlane, _: list[Copy]) -> None:
        plane.set_limits(A, Limits(link=90.0))
        plane.set_limits(C, Limits(link=20.0))
        plane.lead(P0, A, end=1000.0, ingress=10.0, egress=0.0)
        plane.lead(P1, A, end=400.0, ingress=0.0, egress=0.0)
        copies = [copy_of(plane, P0, A, B), copy_of(plane, P1, A, B), copy_of(plane, P0, A, C)]
        for step in range(60):
            assert plane.left_bytes() == pytest.approx(sum(copy.backlog(plane.now_s) for copy in copies), abs=0.01)
            if step == 10:
                plane.set_rates(P0, ingress=30.0, egress=0.0)
            await world.sleep(0.7)
        assert not copies[2].is_caught_up and copies[1].is_caught_up
        assert not plane.arrives(), "broker C's link takes less than producers write"
        plane.set_rates(P0, ingress=1.0, egress=0.0)
        assert plane.arrives()

    play(scenario)
