"""The balance of leaders: when it is looked at again."""

from __future__ import annotations

from controller.core import events
from tests.worlds.core import World

LOOK = events.AutoPreferredReplicaLeaderElection()


def test_it_is_looked_at_again_after_the_interval_whatever_happens() -> None:
    world = World(auto_leader_rebalance_enable=True, leader_imbalance_check_interval_seconds=300)
    world.broker_starts(1, 2)
    world.topic("t", p0=(1, 2))
    world.start()
    assert [(timer.event, timer.after_ms) for timer in world.timers] == [(LOOK, 5_000)]
    world.timers.clear()
    world.run(LOOK)
    assert [(timer.event, timer.after_ms) for timer in world.timers] == [(LOOK, 300_000)]
    world.timers.clear()
    world.run(events.ControlledShutdown(2, -1, 1), LOOK)
    assert [(timer.event, timer.after_ms) for timer in world.timers] == [(LOOK, 300_000)]
