"""Winning, keeping and losing the office."""

from __future__ import annotations

import json
from typing import Any

import pytest

from controller.core import events, step
from controller.core.effects import (
    Effect,
    ElectionAnswer,
    ListingAnswer,
    Read,
    RemoveBrokers,
    Reply,
    ShutdownAnswer,
    drive_now,
)
from controller.core.events import ElectionTrigger, ElectionType
from controller.core.settings import RETRY_MS
from controller.wire import log_events as ev
from controller.wire.errors import ErrorCode
from controller.wire.types import BrokerId, TopicPartition
from controller.wire.zk_operations import Create, Delete, Exists, GetData, Multi, SetData, ZkCode, ZkResult

TP = TopicPartition("t", 0)


def named(world: Any) -> tuple[int | None, int]:
    """Who `/controller` names, and the session that owns it."""
    result = world.tree.read(GetData("/controller"))
    return (json.loads(result.data)["brokerid"], result.stat.ephemeral_owner) if result.ok else (None, 0)


def started(world: Any) -> Any:
    world.broker_starts(1, 2)
    world.topic("t", p0=(1, 2))
    world.start()
    world.take_lines()
    return world


def another_takes_over(world: Any, controller_id: int = 0) -> None:
    """Another controller wins: the znode names it, the epoch and its version rise."""
    world.others_write(Delete("/controller"))
    world.others_write(Create("/controller", json.dumps({"version": 2, "brokerid": controller_id}).encode()))
    world.others_write(SetData("/controller_epoch", b"7"))


def test_the_first_controller_has_epoch_1_and_version_1(world: Any) -> None:
    started(world)
    assert (world.state.epoch, world.state.epoch_zk_version) == (1, 1)
    assert named(world) == (100, world.session)
    assert world.state.serving


@pytest.mark.known_failure("F2")
def test_a_second_term_behaves_like_the_first(world: Any) -> None:
    """F2: the session expires, the same process wins again, everything is handled."""
    started(world)
    world.end_session(world.session)
    world.events.clear()
    world.run(events.Expire())
    assert not world.state.serving and world.state.gauges()["ActiveControllerCount"] == 0
    world.session += 100
    world.run(events.RegisterBrokerAndReelect(world.session))
    assert world.state.epoch == 2
    world.topic("u", p0=(2, 1))
    world.broker_starts(3)
    world.run()
    assert world.leadership(TopicPartition("u", 0)).leader == 2
    assert sorted(world.state.live_brokers) == [1, 2, 3]


def test_the_loser_of_an_election_waits(world: Any) -> None:
    world.make("/controller", b'{"version":2,"brokerid":0}')
    world.make("/controller_epoch", b"4")
    world.take_lines()
    world.start()
    assert world.state.active_controller_id == 0 and not world.state.serving
    assert ev.ZK_DATA_REFUSED not in {line.event for line in world.logs}
    assert world.take_lines() == []
    world.others_write(Delete("/controller"))
    world.run()
    assert world.state.epoch == 5


@pytest.mark.known_failure("E1", "E2")
def test_a_write_that_meets_a_newer_controller_ends_the_term(world: Any) -> None:
    """E1, E2: nothing of the old controller reaches ZooKeeper, and its own epoch stays what its election made it."""
    started(world)
    another_takes_over(world)
    world.events.clear()
    world.broker_dies(1)
    before = world.leadership(TP)
    world.run()
    assert world.take_lines() == []
    assert world.leadership(TP) == before
    assert not world.state.serving and world.channels == set()


@pytest.mark.known_failure("E1")
@pytest.mark.parametrize("epoch", [2, 9])
def test_a_state_written_by_a_newer_controller_is_left_alone(world: Any, epoch: int) -> None:
    started(world)
    state = b'{"controller_epoch":%d,"leader":1,"version":1,"leader_epoch":3,"isr":[1,2]}' % epoch
    world.make("/brokers/topics/t/partitions/0/state", state)
    world.broker_dies(1)
    world.run()
    assert world.leadership(TP).leader_epoch == 3
    assert world.state.serving
    assert ev.PARTITION_ELECTION_FAILED in {line.event for line in world.logs}


@pytest.mark.known_failure("X1")
def test_a_left_over_znode_of_the_own_session_is_cleared(world: Any) -> None:
    """X1: named, but not serving. Kafka would stop here and nobody would lead the cluster."""
    started(world)
    world.run(events.Expire())
    assert named(world) == (100, world.session)
    world.run(events.RegisterBrokerAndReelect(world.session))
    assert world.state.serving and world.state.epoch == 2
    world.topic("u", p0=(2, 1))
    world.run()
    assert world.leadership(TopicPartition("u", 0)).leader == 2


@pytest.mark.known_failure("X1")
def test_a_left_over_znode_of_a_foreign_session_is_waited_for(world: Any) -> None:
    """X1: an earlier process with this id died; its session has not ended yet."""
    world.make("/controller", b'{"version":2,"brokerid":100}')
    world.start()
    assert not world.state.serving
    world.topic("t", p0=(1,))
    world.run()
    assert named(world)[0] == 100 and world.state.epoch == 0
    world.others_write(Delete("/controller"))
    world.run()
    assert world.state.serving


@pytest.mark.parametrize("how", ["it resigns", "its session expires"])
def test_timers_end_with_the_office(World: Any, how: str) -> None:
    """Else the balance of a former term would go on in the next one, beside its own."""
    world = started(World(auto_leader_rebalance_enable=True))
    assert [timer.event for timer in world.timers] == [events.AutoPreferredReplicaLeaderElection()]
    if how == "it resigns":
        world.others_write(Delete("/controller"))
        world._write(Create("/controller", b'{"version":2,"brokerid":200}', ephemeral=True), session=77)
        world.events.clear()
        world.run(events.ControllerChange())
    else:
        world.run(events.Expire())
    assert not world.state.serving and world.timers == []


def test_who_has_lost_the_office_names_who_has_it_and_nobody_without_a_session(world: Any) -> None:
    started(world)
    assert world.state.active_controller_id == 100
    another_takes_over(world)
    world.run()
    assert (world.state.serving, world.state.active_controller_id) == (False, 0)
    world.run(events.Expire())
    assert (world.state.session_id, world.state.active_controller_id) == (None, None)
    world.others_write(Delete("/controller"))
    world.events.clear()
    world.run(events.RegisterBrokerAndReelect(world.session))
    assert (world.state.serving, world.state.active_controller_id) == (True, 100)
    world.run(events.Expire())
    assert (world.state.serving, world.state.active_controller_id) == (False, None)


def test_an_office_in_the_name_of_this_controller_by_another_session_is_not_its_own(world: Any) -> None:
    """A second process with its id, or a session that this one does not know any more."""
    started(world)
    world.others_write(Delete("/controller"))
    world._write(Create("/controller", b'{"version":2,"brokerid":100}', ephemeral=True), session=77)
    world.events.clear()
    world.run(events.ControllerChange())
    assert not world.state.serving
    assert named(world) == (100, 77)


def test_an_election_that_was_won_although_its_answer_was_lost(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    write = type(world)._write

    def losing(self: Any, op: Any, session: int) -> ZkResult:
        result: ZkResult = write(self, op, session)
        return ZkResult(ZkCode.NODE_EXISTS) if isinstance(op, Multi) else result

    monkeypatch.setattr(type(world), "_write", losing)
    world.start()
    assert world.state.serving and world.state.epoch_zk_version == 1


@pytest.mark.known_failure("X1")
def test_a_deletion_during_the_failover_is_not_missed(world: Any) -> None:
    """The watch is one-shot: in Kafka it fires for the own creation and sees nothing until that is worked off."""
    world.broker_starts(1)
    world.topic("t", p0=(1,))

    def perform(effect: Effect) -> Any:
        answer = world.perform(effect)
        if world.state.serving and named(world)[0] is not None and world.state.live_brokers:
            world.others_write(Delete("/controller"))
        return answer

    drive_now(step.handle(world.state, world.startup, 0), perform)
    world.run()
    assert world.state.serving and world.state.epoch == 2
    assert named(world) == (100, world.session)


@pytest.mark.known_failure("E4")
def test_a_failover_that_fails_gives_the_office_up_in_full(world: Any) -> None:
    """E4: a znode that cannot be read; once it is sound the second term works, and epochs do not race meanwhile."""
    world.broker_starts(1)
    world.topic("t", p0=(1,))
    world.tree.refusal = lambda op: ZkCode.NO_AUTH if getattr(op, "path", None) == "/brokers/ids" else None
    world.start()
    assert not world.state.serving
    assert named(world) == (None, 0)
    assert {(timer.event, timer.after_ms) for timer in world.timers} == {(events.Reelect(), RETRY_MS)}
    assert world.tree.read(GetData("/controller_epoch")).data == b"1"
    world.now_ms += RETRY_MS
    world.tree.refusal = lambda op: None
    world.run(events.Reelect())
    assert world.state.serving and world.state.epoch == 2
    assert world.leadership(TP).leader == 1


@pytest.mark.parametrize("is_asked", [True, False], ids=["and is asked", "and is not asked"])
@pytest.mark.parametrize("set_by_ms", [-3_600_000, -1, 0, 1, 400, RETRY_MS - 1, RETRY_MS, 3_600_000])
def test_after_each_failed_term_the_next_attempt_waits_no_longer_for_a_clock_that_was_set(
    world: Any, set_by_ms: int, is_asked: bool
) -> None:
    """Set forward, as time that passes; set back, the wait begins anew, once, when somebody looks at the clock."""
    path = "/brokers/ids"
    world.tree.refusal = lambda op: ZkCode.NO_AUTH if getattr(op, "path", None) == path else None
    world.start()
    for attempts in range(1, 4):
        waited_ms = 0
        world.now_ms += set_by_ms
        if is_asked:
            world.run(*[events.Reelect()] * 3)
        while (tried := int(world.tree.get("/controller_epoch").payload)) == attempts:
            (timer,) = world.timers
            world.timers.clear()
            waited_ms += timer.after_ms
            world.now_ms += timer.after_ms
            world.run(timer.event)
        assert tried == attempts + 1 and not world.state.serving
        again_ms = RETRY_MS - set_by_ms if is_asked else RETRY_MS + max(0, -set_by_ms)
        assert waited_ms == max(0, min(again_ms, RETRY_MS if is_asked else 2 * RETRY_MS))


CALLERS = [
    (events.ApiPartitionReassignment({TP: None}, 5), ErrorCode.NOT_CONTROLLER),
    (events.ListPartitionReassignments(None, 5), ErrorCode.NOT_CONTROLLER),
    (events.ControlledShutdown(BrokerId(1), -1, 5), ErrorCode.STALE_CONTROLLER_EPOCH),
]


@pytest.mark.parametrize(("event", "error"), CALLERS, ids=lambda value: type(value).__name__)
@pytest.mark.known_failure("F5")
def test_callers_of_an_inactive_controller_are_told(world: Any, event: Any, error: ErrorCode) -> None:
    """F5: also when the event is drained unprocessed."""
    world.run(event)
    assert world.replies[5].error is error
    (reply,) = step.preempted(event)
    assert isinstance(reply, Reply) and reply.reply_to == 5
    assert isinstance(reply.answer, ListingAnswer | ShutdownAnswer | type(world.replies[5]))


def test_elections_of_an_inactive_controller_are_refused_one_by_one(world: Any) -> None:
    event = events.ReplicaLeaderElection(frozenset({TP}), ElectionType.PREFERRED, ElectionTrigger.ADMIN_CLIENT, 5)
    world.run(event)
    assert isinstance(world.replies[5], ElectionAnswer)
    assert world.replies[5].partitions[TP].error is ErrorCode.NOT_CONTROLLER


@pytest.mark.parametrize("event_type", events.Event.__args__, ids=lambda t: t.__name__)
@pytest.mark.known_failure("C4")
def test_every_event_has_a_state(event_type: type[Any]) -> None:
    """C4: no event is lost because its instrumentation is missing."""
    assert event_type in step.STATES


@pytest.mark.known_failure("F4")
def test_after_resigning_nothing_is_sent_or_written(world: Any) -> None:
    """F4: whatever is queued or fires later."""
    started(world)
    another_takes_over(world)
    world.run()
    assert not world.state.serving
    world.sent.clear()
    world.take_lines()
    world.make("/admin/reassign_partitions", b'{"version":1,"partitions":[]}')
    world.topic("u", p0=(1,))
    world.broker_starts(3)
    world.run(events.TopicChange(), events.IsrChangeNotification(), events.AutoPreferredReplicaLeaderElection())
    assert world.sent == [] and world.take_lines() == [] and world.timers == []


FEATURES = [  # version, status, features (None: they are missing) -> whether a failover writes it anew
    *((1, 0, found, found != "{}") for found in ("{}", '{"f":{"min_version_level":1,"max_version_level":3}}')),
    *((2, 0, found, True) for found in ("{}", '{"f":{"max_version_level":3}}')),
    *((version, 1, found, True) for version in (1, 2) for found in ("{}", '{"f":{"max_version_level":3}}')),
    *((version, status, "{}", False) for version, status in ((0, 0), (3, 0), (1, 2), (1, -1))),
    *((1, status, found, False) for status in (0, 1) for found in ("[]", "null", '""', "0", None)),
]


@pytest.mark.parametrize(("version", "status", "features", "is_written"), FEATURES)
def test_features_are_disabled_and_none_unless_nobody_knows_what_they_are(
    world: Any, version: int, status: int, features: str | None, is_written: bool
) -> None:
    """As 3.9 does at 2.6, which fails where they cannot be read; here they are left, and the office is taken."""
    rest = "" if features is None else f',"features":{features}'
    found = f'{{"version":{version},"status":{status}{rest}}}'.encode()
    world.make("/feature", found)
    before = world.tree.get("/feature").version
    started(world)
    after = world.tree.get("/feature")
    written = (b'{"features":{},"version":1,"status":0}', before + 1)
    assert (after.payload, after.version) == (written if is_written else (found, before))
    assert world.state.serving


def test_features_that_are_not_there_are_written(world: Any) -> None:
    started(world)
    assert world.tree.get("/feature").payload == b'{"features":{},"version":1,"status":0}'


@pytest.mark.parametrize("what", ["written", "gone", "made anew"])
def test_a_term_ends_whose_epoch_others_wrote_and_the_next_one_goes_on(world: Any, what: str) -> None:
    """Nothing of that term could be written any more; `/controller` names this process all the while."""
    started(world)
    if what == "written":
        world.others_write(SetData("/controller_epoch", b"7"))
    else:
        world.others_write(Delete("/controller_epoch"))
    if what == "made anew":
        world.others_write(Create("/controller_epoch", b"1"))
    world.topic("u", p0=(2,))
    world.run()
    for timer in list(world.timers):
        world.run(timer.event)
    assert world.state.serving and world.leadership(TopicPartition("u", 0)).leader == 2


def test_an_office_that_is_lost_before_it_is_watched_is_run_for_again(world: Any) -> None:
    """Nobody would tell of a `/controller` that went before anybody looked at it."""
    world.broker_starts(1, 2)
    perform, lost = world.perform, []

    def losing(effect: Effect) -> Any:
        if isinstance(effect, Read) and effect.ops == (Exists("/controller", watch=True),) and not lost:
            lost.append(named(world))
            world.others_write(Delete("/controller"))
        return perform(effect)

    world.perform = losing
    world.start()
    for timer in list(world.timers):
        world.run(timer.event)
    assert len(lost) == 1 and named(world) == lost[0] and world.state.serving
    assert world.state.epoch == 2


@pytest.mark.parametrize("by", ["nobody", "another"])
def test_an_office_that_goes_between_two_looks_of_one_event_is_over(World: Any, by: str) -> None:
    """Neither is it held on to until a watch tells, nor is a second term begun in the middle of it."""
    world = started(World(auto_leader_rebalance_enable=True))
    perform, looks = world.perform, (GetData("/controller_epoch"), GetData("/controller"))
    closed: list[Effect] = []

    def losing(effect: Effect) -> Any:
        if isinstance(effect, RemoveBrokers):
            closed.append(effect)
        if isinstance(effect, Read) and effect.ops == looks and world.state.epoch == 1:
            world.others_write(Delete("/controller"))
            if by == "another":
                another_takes_over(world)
        return perform(effect)

    world.perform = losing
    world.process(events.Reelect())
    assert (world.state.serving, world.state.epoch) == ((True, 2) if by == "nobody" else (False, 0))
    assert len(world.timers) == (1 if by == "nobody" else 0), "none is left of the first term"
    assert closed == [RemoveBrokers(None)], "nor a channel"


def test_an_election_that_zookeeper_refuses_is_tried_again_after_a_while(world: Any) -> None:
    world.tree.refusal = lambda op: ZkCode.NO_AUTH if isinstance(op, Multi) else None
    world.process(world.startup)
    assert not world.events and [(timer.event, timer.after_ms) for timer in world.timers] == [
        (events.Reelect(), RETRY_MS)
    ]
    world.tree.refusal, world.now_ms = lambda op: None, world.now_ms + RETRY_MS
    world.run(world.timers.pop().event)
    assert world.state.serving and world.state.epoch == 1


def test_who_serves_goes_on_although_an_attempt_of_before_was_to_wait_longer(World: Any) -> None:
    """The clock was set back since."""
    world = World(auto_leader_rebalance_enable=True)
    world.tree.refusal = lambda op: ZkCode.NO_AUTH if getattr(op, "path", None) == "/brokers/ids" else None
    world.start()
    world.tree.refusal, world.now_ms = lambda op: None, world.now_ms + RETRY_MS
    world.run(world.timers.pop().event)
    waits = [timer.event for timer in world.timers]
    assert world.state.serving and waits == [events.AutoPreferredReplicaLeaderElection()]
    world.now_ms -= RETRY_MS
    world.run(events.Reelect())
    assert world.state.serving and [timer.event for timer in world.timers] == waits
