"""Read this first: one `match` says what happens at each event.

    handle(state, event, now_ms)  -> a recipe: a generator of effects; `effects` says what each is answered with
    preempted(event)              -> the answers owed for an event that is dropped unprocessed
    may_be_dropped(event)         -> whether an event may be: one that brings a fact may not

Then read `events`, `effects`, `transitions`, `leader_choice`; `failover` shows most other parts in their order.
"""

from __future__ import annotations

from typing import Final, assert_never

from controller.core import brokers, deletion, elections, events, notifications, office, reassignment, shutdown, topics
from controller.core.effects import (
    Effect,
    ElectionAnswer,
    Enqueue,
    ListingAnswer,
    Log,
    PartitionOutcome,
    ReassignmentAnswer,
    Recipe,
    Reply,
    ShutdownAnswer,
    Steps,
)
from controller.core.events import ControllerState, Event
from controller.core.partitions import trigger_online
from controller.core.settings import RETRY_MS
from controller.core.state import ClusterState
from controller.core.verdicts import Verdict, judge
from controller.wire import log_events as ev
from controller.wire.errors import ErrorCode

#: Events that every controller handles, whether it holds the office or not.
OFFICE_EVENTS: Final = (
    events.Startup,
    events.ControllerChange,
    events.Reelect,
    events.RegisterBrokerAndReelect,
    events.Expire,
)

#: Events that say that something may have changed, not what. One that fails because a znode cannot be read comes again:
#: its watch may not be armed, so nothing else would call for it.
REPEATED: Final = (
    *OFFICE_EVENTS,
    events.BrokerChange,
    events.BrokerModifications,
    events.TopicChange,
    events.PartitionModifications,
    events.TopicDeletion,
    events.ZkPartitionReassignment,
    events.PartitionReassignmentIsrChange,
    events.IsrChangeNotification,
    events.LogDirEventNotification,
)


#: Events that bring what no other event repeats. They are handled with or without office, and never dropped.
FACTS: Final = (events.Startup, events.UncleanLeaderElectionEnable)


def may_be_dropped(event: Event) -> bool:
    """Whether the event may be dropped unprocessed when the session ends: what it calls for is done anew then."""
    return not isinstance(event, FACTS)


def handle(state: ClusterState, event: Event, now_ms: int) -> Recipe:
    """The recipe for one event. The shell drives it to its end before it takes the next event.

    The shell throws into it what went wrong with an effect: ControllerMoved at a Write whose fence broke,
    ZkSessionExpired when the session is gone, or anything else. `verdicts.judge` says what follows; a recipe that ends
    with an exception has done its part of it, and whoever waits for an answer has got one unless it is a fault.
    """
    try:
        if state.serving or isinstance(event, (*OFFICE_EVENTS, *FACTS)):
            yield from _process(state, event, now_ms)
        else:
            yield from preempted(event)
    except Exception as error:
        verdict = judge(error)
        if verdict is Verdict.RESIGN:
            yield Log(ev.CONTROLLER_MOVED, {"reason": str(error), "event": type(event).__name__})
            yield from preempted(event)
            yield from office.fence_broke(state)
        elif verdict is Verdict.REPEAT and _is_repeated(event):
            yield Log(ev.ZK_READ_REFUSED, {"reason": str(error), "event": type(event).__name__}, "error")
            yield Enqueue(event, RETRY_MS)
        else:
            yield from preempted(event) if verdict is Verdict.DROP else ()
            raise


def _is_repeated(event: Event) -> bool:
    by_znode = isinstance(event, events.ReplicaLeaderElection) and event.trigger is events.ElectionTrigger.ZK
    return by_znode or isinstance(event, REPEATED)


def _process(state: ClusterState, event: Event, now_ms: int) -> Steps[None]:
    """One line per event: this is the table of contents."""
    match event:
        case events.Startup() | events.Reelect() | events.RegisterBrokerAndReelect():
            yield from office.elect_again(state, event, now_ms)
        case events.ControllerChange():
            yield from office.office_changed(state)
        case events.Expire():
            yield from office.expired(state)
        case events.BrokerChange():
            yield from brokers.brokers_changed(state)
        case events.BrokerModifications(broker_id):
            yield from brokers.registration_changed(state, broker_id)
        case events.TopicChange():
            yield from topics.topics_changed(state)
        case events.PartitionModifications(topic):
            yield from topics.partitions_changed(state, topic)
        case events.TopicDeletion():
            yield from deletion.markers_changed(state)
        case events.TopicDeletionStopReplicaResponseReceived(broker_id, error, partition_errors):
            yield from deletion.answered(state, broker_id, error, partition_errors.items())
        case events.ZkPartitionReassignment():
            yield from reassignment.by_znode(state)
        case events.ApiPartitionReassignment():
            yield from reassignment.by_api(state, event)
        case events.PartitionReassignmentIsrChange(topic_partition, others):
            yield from reassignment.maybe_complete(state, {topic_partition, *others})
        case events.ListPartitionReassignments(_, reply_to):
            yield Reply(reply_to, reassignment.listing(state, event))
        case events.ReplicaLeaderElection():
            yield from elections.by_request(state, event)
        case events.AutoPreferredReplicaLeaderElection():
            yield from elections.balance(state)
        case events.UncleanLeaderElectionEnable(enabled):
            yield from elections.default_of_unclean_changed(state, enabled)
        case events.TopicUncleanLeaderElectionEnable(topic):
            yield from trigger_online(state, topic)
        case events.ControlledShutdown():
            yield from shutdown.shut_down(state, event)
        case events.LeaderAndIsrResponseReceived():
            yield from brokers.leader_and_isr_answered(state, event)
        case events.UpdateMetadataResponseReceived(broker_id, error):
            yield from brokers.update_metadata_answered(broker_id, error)
        case events.IsrChangeNotification(again):
            yield from notifications.isr_changed(state, again)
        case events.LogDirEventNotification():
            yield from notifications.log_dirs_failed(state)
        case _:
            assert_never(event)


def preempted(event: Event) -> tuple[Effect, ...]:
    """The answers owed for an event that is dropped unprocessed, or that meets an inactive controller.

    Source: spec controller.md §4.2.
    """
    match event:
        case events.ApiPartitionReassignment(_, reply_to):
            return (Reply(reply_to, ReassignmentAnswer(ErrorCode.NOT_CONTROLLER, {})),)
        case events.ListPartitionReassignments(_, reply_to):
            return (Reply(reply_to, ListingAnswer(ErrorCode.NOT_CONTROLLER, {})),)
        case events.ReplicaLeaderElection(partitions, _, _, int() as reply_to):
            refused = PartitionOutcome(ErrorCode.NOT_CONTROLLER)
            return (Reply(reply_to, ElectionAnswer(dict.fromkeys(sorted(partitions or ()), refused))),)
        case events.ControlledShutdown(_, _, reply_to):
            return (Reply(reply_to, ShutdownAnswer(ErrorCode.STALE_CONTROLLER_EPOCH)),)
    return ()


#: What the `ControllerState` gauge shows while an event is processed. Source: spec controller.md §4.2.
STATES: Final[dict[type[Event], ControllerState]] = {
    events.Startup: ControllerState.CONTROLLER_CHANGE,
    events.ControllerChange: ControllerState.CONTROLLER_CHANGE,
    events.Reelect: ControllerState.CONTROLLER_CHANGE,
    events.RegisterBrokerAndReelect: ControllerState.CONTROLLER_CHANGE,
    events.Expire: ControllerState.CONTROLLER_CHANGE,
    events.BrokerChange: ControllerState.BROKER_CHANGE,
    events.BrokerModifications: ControllerState.BROKER_CHANGE,
    events.TopicChange: ControllerState.TOPIC_CHANGE,
    events.PartitionModifications: ControllerState.TOPIC_CHANGE,
    events.TopicDeletion: ControllerState.TOPIC_DELETION,
    events.TopicDeletionStopReplicaResponseReceived: ControllerState.TOPIC_DELETION,
    events.ZkPartitionReassignment: ControllerState.ALTER_PARTITION_REASSIGNMENT,
    events.ApiPartitionReassignment: ControllerState.ALTER_PARTITION_REASSIGNMENT,
    events.PartitionReassignmentIsrChange: ControllerState.ALTER_PARTITION_REASSIGNMENT,
    events.ListPartitionReassignments: ControllerState.LIST_PARTITION_REASSIGNMENT,
    events.ReplicaLeaderElection: ControllerState.MANUAL_LEADER_BALANCE,
    events.AutoPreferredReplicaLeaderElection: ControllerState.AUTO_LEADER_BALANCE,
    events.UncleanLeaderElectionEnable: ControllerState.UNCLEAN_LEADER_ELECTION_ENABLE,
    events.TopicUncleanLeaderElectionEnable: ControllerState.TOPIC_UNCLEAN_LEADER_ELECTION_ENABLE,
    events.ControlledShutdown: ControllerState.CONTROLLED_SHUTDOWN,
    events.LeaderAndIsrResponseReceived: ControllerState.LEADER_AND_ISR_RESPONSE_RECEIVED,
    events.UpdateMetadataResponseReceived: ControllerState.UPDATE_METADATA_RESPONSE_RECEIVED,
    events.IsrChangeNotification: ControllerState.ISR_CHANGE,
    events.LogDirEventNotification: ControllerState.LOG_DIR_CHANGE,
}


def state_during(event: Event) -> ControllerState:
    """What the `ControllerState` gauge shows while the event is processed."""
    return STATES[type(event)]
