"""The office of controller: who holds it, how it is won, given up and taken over.

There is one `/controller` znode and one epoch; the version of the epoch's znode fences every write of its holder.
Being named by the znode and serving are two things (known-failures.md X1): the state hears of the second by
`office_won`.

Source: Kafka 3.9 `KafkaController.elect`, `maybeResign`, `onControllerResignation`, `triggerControllerMove`;
spec controller.md §2.
"""

from __future__ import annotations

from typing import Final

from controller.core.effects import (
    CancelTimers,
    ControllerMoved,
    Enqueue,
    Log,
    RemoveBrokers,
    Steps,
    Trace,
    read,
    read_any,
    refused_znode,
    write,
)
from controller.core.events import ControllerChange, Reelect, RegisterBrokerAndReelect, Startup
from controller.core.failover import take_office
from controller.core.settings import RETRY_MS
from controller.core.state import ClusterState
from controller.core.verdicts import Verdict, judge
from controller.wire import log_events as ev
from controller.wire.trace import CONTROLLER_ELECTED, CONTROLLER_RESIGNED, TraceEvent
from controller.wire.zk_operations import (
    Check,
    Create,
    Delete,
    Exists,
    GetData,
    Multi,
    SetData,
    ZkCode,
    ZkResult,
)
from controller.wire.znodes import BrokerIdZNode, ControllerEpochZNode, ControllerZNode

INITIAL_EPOCH: Final = 0


def resign(state: ClusterState) -> Steps[None]:
    """Stops serving: timers and channels go, everything believed is forgotten. Harmless when not serving.

    Watches need no care: those still armed lead to events that an inactive controller ignores. Source: §2.3.
    """
    was_serving, epoch = state.serving, state.epoch
    brokers = None  # all: in the middle of a bounce some have a channel that are not live
    state.office_lost()  # first: whatever fails below, nobody serves any more
    for effect in (CancelTimers(), RemoveBrokers(brokers)):
        try:
            yield effect
        except Exception as error:
            if judge(error) is not Verdict.FAULT:
                raise
            yield Log(ev.CONTROLLER_FAULTED, {"reason": f"{effect} failed: {error!r}"}, "error")
    if was_serving:
        yield Log(ev.CONTROLLER_RESIGNED, {"controller_epoch": epoch})
        yield from _trace(state, epoch, CONTROLLER_RESIGNED)


def _trace(state: ClusterState, epoch: int, value: str) -> Steps[None]:
    """The trace row of taking or leaving office."""
    if state.settings.trace:
        yield Trace(TraceEvent.CONTROLLER.value, {"epoch": epoch, "value": value})


def maybe_resign(state: ClusterState) -> Steps[bool]:
    """Looks who holds the office, watches it, and resigns if it was lost. Returns whether the office is vacant: nobody
    can hold it by the znode of a process that does not serve."""
    _, named = yield from read(Exists(ControllerZNode.path, watch=True), GetData(ControllerZNode.path))
    state.controller_named(ControllerZNode.decode(named.data) if named.ok else None)
    if named.ok and state.active_controller_id is None:
        yield refused_znode(ControllerZNode.path, "it names no controller")
    yield from _note_brokerless(state, named)
    if state.serving and not _is_own(state, named):
        yield Log(ev.CONTROLLER_MOVED, {"active_controller": state.active_controller_id})
        yield from resign(state)
    return named.code is ZkCode.NO_NODE or (not state.serving and _is_left_over(state, named))


def _is_left_over(state: ClusterState, named: ZkResult) -> bool:
    """Whether this znode goes with the session of this process, whatever somebody has written into it."""
    owner = named.stat.ephemeral_owner if named.stat is not None else 0
    return bool(owner) and owner == state.session_id


def _note_brokerless(state: ClusterState, named: ZkResult) -> Steps[None]:
    """Remembers who holds the office without being a broker: brokers that know no newer metadata may still place
    replicas on that one (`topics.off_the_controller`). Where a broker holds the office, one session owns its
    registration and `/controller`: when the registration is read first and is missing, and the very same `/controller`
    is there afterwards, then it is no broker that holds the office."""
    other = state.active_controller_id
    if other is None or other in state.brokerless or named.stat is None:
        return
    registered, still = yield from read(Exists(BrokerIdZNode.path(other)), GetData(ControllerZNode.path))
    if not registered.ok and still.stat is not None and still.stat.czxid == named.stat.czxid:
        state.brokerless_seen(other)


def _is_own(state: ClusterState, named: ZkResult) -> bool:
    """Whether this znode is that of this process: its id, and its session where that is known."""
    if not named.ok or ControllerZNode.decode(named.data) != state.controller_id:
        return False
    owner = named.stat.ephemeral_owner if named.stat else 0
    return not owner or state.session_id is None or owner == state.session_id


def office_changed(state: ClusterState) -> Steps[None]:
    """`/controller` was created or changed, or a write met a newer controller. A vacancy leads to an election: its
    deletion may have gone unseen. Where it cannot be told who holds the office, that is asked again."""
    try:
        vacant = yield from maybe_resign(state)
    except Exception as error:
        if judge(error) is not Verdict.REPEAT:
            raise
        yield Log(ev.ZK_READ_REFUSED, {"reason": str(error)}, "error")
        yield Enqueue(ControllerChange(), RETRY_MS)
        return
    if vacant:
        yield Enqueue(Reelect())


def fence_broke(state: ClusterState) -> Steps[None]:
    """A write met another `/controller_epoch`: mostly a newer controller's, as `/controller` shows. Where `/controller`
    is this process's still, somebody else has written there, and no write of this term will ever be done: it ends, and
    the next election finds the epoch as it is now (Kafka stays in office for ever; docs/deviations.md)."""
    yield from office_changed(state)
    if not state.serving:
        return
    (found,) = yield from read_any((GetData(ControllerEpochZNode.path),))
    if found.stat is None or found.stat.version != state.epoch_zk_version:  # gone, changed, or nobody can say
        yield from resign(state)
        yield Enqueue(Reelect())


def elect_again(state: ClusterState, event: Startup | RegisterBrokerAndReelect | Reelect, now_ms: int) -> Steps[None]:
    """`/controller` was deleted, or the session is new. After a failed term the next attempt waits."""
    if isinstance(event, Startup):
        state.started(event.session_id, event.endpoint)
    elif isinstance(event, RegisterBrokerAndReelect):
        state.session_began(event.session_id)
    yield from maybe_resign(state)
    state.office_not_before(min(state.election_not_before_ms, now_ms + RETRY_MS))  # the clock may have been set back
    wait_ms = state.election_not_before_ms - now_ms
    if wait_ms > 0 and not state.serving:
        yield CancelTimers()  # one attempt waits, however many events ask for it
        yield Enqueue(Reelect(), wait_ms)
        return
    yield from run_for_office(state, now_ms)


def expired(state: ClusterState) -> Steps[None]:
    """The session is gone, and the office with it; nothing can be written."""
    state.session_ended()
    state.controller_named(None)
    yield from resign(state)


def run_for_office(state: ClusterState, now_ms: int) -> Steps[None]:
    """Elects, and serves when elected. Whatever goes wrong in taking office, it is given up in full (E4)."""
    try:
        if not (yield from elect(state, now_ms)):
            return
        yield from take_office(state)
    except Exception as error:
        match judge(error):
            case Verdict.RESIGN:
                yield from fence_broke(state)
                return
            case Verdict.DROP:
                raise
        # an office that cannot be taken must not be held
        yield Log(ev.CONTROLLER_FAULTED, {"reason": repr(error), "controller_epoch": state.epoch}, "error")
        state.office_not_before(now_ms + RETRY_MS)
        yield from trigger_controller_move(state)
        yield Enqueue(Reelect(), RETRY_MS)  # where no znode was made, none goes that would call for the next attempt


def trigger_controller_move(state: ClusterState) -> Steps[None]:
    """Gives up the office and frees the znode, so that any controller can take over."""
    epoch_zk_version = state.epoch_zk_version
    (named,) = yield from read_any((GetData(ControllerZNode.path),))
    own = _is_own(state, named)
    yield from resign(state)
    state.controller_named(None if own else ControllerZNode.decode(named.data))
    if own:
        try:
            yield from write((Delete(ControllerZNode.path),), epoch_zk_version)
        except ControllerMoved:
            yield Log(ev.CONTROLLER_MOVED, {"reason": "another controller was elected meanwhile"})


def elect(state: ClusterState, now_ms: int) -> Steps[bool]:
    """Runs for office: True when won. Source: §2.1, whose steps the comments give.

    Raises: ControllerMoved, when somebody else was faster.
    """
    epoch_node, named = yield from read(GetData(ControllerEpochZNode.path), GetData(ControllerZNode.path))
    if state.serving:
        if _is_own(state, named):
            return False
        yield from resign(state)  # the office was lost since the caller looked: no second term without an end
    if epoch_node.code is ZkCode.NO_NODE and (not named.ok or _is_left_over(state, named)):  # 2
        yield from write((Create(ControllerEpochZNode.path, ControllerEpochZNode.encode(INITIAL_EPOCH)),), None)
        (epoch_node,) = yield from read(GetData(ControllerEpochZNode.path))
    if named.ok and not (yield from _cleared(state, epoch_node, named)):  # 1
        return False
    if epoch_node.stat is None:
        raise RuntimeError(f"{ControllerEpochZNode.path} cannot be created")
    epoch = max(ControllerEpochZNode.decode(epoch_node.data), state.epoch_before) + 1
    (result,) = yield from write(  # 3
        (
            Multi(
                (
                    Create(ControllerZNode.path, ControllerZNode.encode(state.controller_id, now_ms), ephemeral=True),
                    SetData(ControllerEpochZNode.path, ControllerEpochZNode.encode(epoch), epoch_node.stat.version),
                )
            ),
        ),
        None,
    )
    if result.ok:  # 4
        raised = result.results[1].stat
        assert raised is not None, "a set that was done has a version"
        version = raised.version
    elif result.code in (ZkCode.NODE_EXISTS, ZkCode.BAD_VERSION):  # 5
        version = yield from _verify(state, epoch)
    else:  # 6
        raise RuntimeError(f"the election was answered {result.code.name}")
    yield from _won(state, epoch, version)  # 7
    return True


def _cleared(state: ClusterState, epoch_node: ZkResult, named: ZkResult) -> Steps[bool]:
    """Whether a znode that stands in the way was this process's own, left over, and is gone now (X1).

    The check on the epoch makes sure that it is the znode that was read which goes.
    """
    state.controller_named(ControllerZNode.decode(named.data))
    if not _is_left_over(state, named) or epoch_node.stat is None:
        yield Log(ev.CONTROLLER_NOT_ELECTED, {"active_controller": state.active_controller_id})
        return False
    ops = (Check(ControllerEpochZNode.path, epoch_node.stat.version), Delete(ControllerZNode.path))
    (result,) = yield from write((Multi(ops),), None)
    state.controller_named(None)
    if not result.ok:
        raise ControllerMoved(f"its own {ControllerZNode.path} was replaced")
    return True


def _verify(state: ClusterState, epoch: int) -> Steps[int]:
    """A refused election may have been won, its answer lost: the version of the epoch's znode if so."""
    named, epoch_node = yield from read(GetData(ControllerZNode.path), GetData(ControllerEpochZNode.path))
    won = _is_own(state, named) and epoch_node.ok and ControllerEpochZNode.decode(epoch_node.data) == epoch
    if not won or epoch_node.stat is None:
        raise ControllerMoved("another controller was elected first")
    return epoch_node.stat.version


def _won(state: ClusterState, epoch: int, epoch_zk_version: int) -> Steps[None]:
    state.office_won(epoch, epoch_zk_version)
    yield Log(ev.CONTROLLER_ELECTED, {"controller_epoch": epoch, "epoch_zk_version": epoch_zk_version})
    yield from _trace(state, epoch, CONTROLLER_ELECTED)
    (seen,) = yield from read(Exists(ControllerZNode.path, watch=True))
    if not seen.ok:  # gone already: look again once office is taken
        yield Enqueue(Reelect())
