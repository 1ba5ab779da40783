"""What is looked at again where nothing can be read, and who is answered where something fails."""

from __future__ import annotations

from typing import Any

import pytest

from controller.core import events
from controller.core.effects import ControllerMoved, Effect, Read, Write
from controller.core.events import ElectionTrigger, ElectionType, Event, ReplicaLeaderElection
from controller.core.settings import RETRY_MS
from controller.wire.errors import ErrorCode
from controller.wire.types import BrokerId, TopicPartition
from controller.wire.zk_operations import Exists, GetChildren, GetData, ZkCode, ZkSessionExpired

TP = TopicPartition("t", 0)
ONE, TWO = BrokerId(1), BrokerId(2)
ASKED = frozenset({TP})
#: Events that say that something may have changed.
LOOKED_AT_AGAIN: list[Event] = [
    events.ControllerChange(),
    events.Reelect(),
    events.BrokerChange(),
    events.BrokerModifications(ONE),
    events.TopicChange(),
    events.PartitionModifications("t"),
    events.TopicDeletion(),
    events.ZkPartitionReassignment(),
    events.IsrChangeNotification(),
    events.LogDirEventNotification(),
    ReplicaLeaderElection(None, ElectionType.PREFERRED, ElectionTrigger.ZK, None),
]
#: Events that somebody waits for.
ANSWERED: list[Event] = [
    ReplicaLeaderElection(ASKED, ElectionType.PREFERRED, ElectionTrigger.ADMIN_CLIENT, 5),
    events.ApiPartitionReassignment({TP: (TWO,)}, 5),
    events.ControlledShutdown(TWO, -1, 5),
]
#: Events that bring what they are about.
ONCE: list[Event] = [
    *ANSWERED,
    events.ListPartitionReassignments(None, 5),
    events.UncleanLeaderElectionEnable(True),
    events.TopicUncleanLeaderElectionEnable("t"),
    events.LeaderAndIsrResponseReceived(ONE, ErrorCode.NONE, {TP: ErrorCode.KAFKA_STORAGE_ERROR}),
    events.TopicDeletionStopReplicaResponseReceived(ONE, ErrorCode.NONE, {TP: ErrorCode.NONE}),
    events.UpdateMetadataResponseReceived(ONE, ErrorCode.NONE),
]


def started(world: Any) -> Any:
    world.broker_starts(1, 2)
    world.topic("t", p0=(1, 2))
    world.start()
    return world


def led_by_the_second(world: Any) -> Any:
    world.broker_dies(1)
    world.run()
    world.broker_starts(1)
    world.run()
    world.leader_writes(TP, (2, 1))
    world.run(events.IsrChangeNotification(again=frozenset({TP})))
    return world


@pytest.mark.parametrize("event", [*LOOKED_AT_AGAIN, *ONCE], ids=lambda event: type(event).__name__)
def test_who_only_says_that_something_may_have_changed_comes_again(world: Any, event: Event) -> None:
    """No watch may be armed that would call for it; who asks for something is answered and asks again."""
    started(world).tree.refusal = lambda op: ZkCode.NO_AUTH if isinstance(op, GetData | GetChildren | Exists) else None
    world.process(event)
    assert [timer.after_ms for timer in world.timers if timer.event == event] == [RETRY_MS] * (event in LOOKED_AT_AGAIN)


@pytest.mark.parametrize("error", [ControllerMoved("it moved"), ZkSessionExpired("it is gone"), RuntimeError("a bug")])
@pytest.mark.parametrize("event", ANSWERED, ids=lambda event: type(event).__name__)
def test_who_waits_hears_of_another_controller_unless_it_is_a_fault(world: Any, event: Event, error: Exception) -> None:
    """Which the shell answers: who is sent to another controller would come back for ever."""
    perform, failed = led_by_the_second(started(world)).perform, []

    def failing(effect: Effect) -> Any:
        if isinstance(effect, Read | Write) and not failed:
            failed.append(effect)
            raise error
        return perform(effect)

    world.perform = failing
    if isinstance(error, ControllerMoved):
        world.process(event)
    else:
        with pytest.raises(type(error), match=str(error)):
            world.process(event)
    assert failed and list(world.replies) == ([] if isinstance(error, RuntimeError) else [5])
    if world.replies:
        answer = world.replies[5]
        errors = {found.error for found in getattr(answer, "partitions", {}).values()} or {answer.error}
        assert errors <= {ErrorCode.NOT_CONTROLLER, ErrorCode.STALE_CONTROLLER_EPOCH}


def test_an_election_of_all_partitions_is_refused_without_naming_any(world: Any) -> None:
    """By a controller that is not in office: it knows none."""
    world.process(ReplicaLeaderElection(None, ElectionType.PREFERRED, ElectionTrigger.ADMIN_CLIENT, 5))
    assert world.replies[5].partitions == {}
