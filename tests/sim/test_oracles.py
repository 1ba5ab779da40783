"""Each oracle sees what it is for: a sound cluster at rest, one thing broken in it, and the complaint."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from controller.sim.oracles import brokers, disks, figures, groups, logs, settled, zookeeper
from controller.sim.oracles.requests import Requests
from controller.sim.plan import Plan
from controller.sim.play import Outcome, Play
from controller.sim.shape import TOPIC, Shape
from controller.sim.watchers import AT_REST
from controller.wire import log_events as ev
from controller.wire.control import (
    LeaderAndIsrEntry,
    LeaderAndIsrRequest,
    StopReplicaEntry,
    StopReplicaRequest,
    UpdateMetadataEntry,
    UpdateMetadataRequest,
)
from controller.wire.records import Record, build_batch
from controller.wire.types import BrokerId, LeaderAndIsr, ReplicaAssignment, TopicPartition
from controller.wire.zk_operations import Create, Delete, SetData, ZkCode, ZkRefused, ZkResult
from controller.wire.znodes import ZnodeError
from controller.world.simulated.world import World, run_world

pytestmark = pytest.mark.sim
TP = TopicPartition(TOPIC, 0)
STATE = f"/brokers/topics/{TOPIC}/partitions/0/state"
SHAPE = Shape(
    brokers=3,
    controllers=2,
    partitions=1,
    idempotent_producers=1,
    balance_interval_s=2,
    imbalance_percentage=0,
    flush_messages=1,
)


class Sound:
    """A cluster at rest, and ways to look at one replica of its topic."""

    def __init__(self, play: Play) -> None:
        self.play, self.cluster, self.history = play, play.cluster, play.history

    def replica(self, broker: int) -> Any:
        held = self.cluster.brokers[broker].replicas
        assert held is not None
        return held.table.partitions[TP]

    @property
    def leader(self) -> Any:
        return self.replica(1)

    @property
    def quota(self) -> Any:
        return self.cluster.brokers[1].replicas.table.leader_quota

    @property
    def follower(self) -> Any:
        return self.replica(2)

    @property
    def idle(self) -> Any:
        return next(each for number, each in sorted(self.cluster.controllers.items()) if number != self.number)

    @property
    def active(self) -> Any:
        return self.cluster.controllers[self.number].state

    @property
    def number(self) -> int:
        found = self.cluster.active_controller()
        assert found is not None
        return found

    @property
    def tree(self) -> Any:
        return self.cluster.world.zookeeper.tree


def known_topics(sound: Sound) -> Any:
    """What broker 1 knows of topics."""
    return sound.cluster.brokers[1].context.metadata._topics


@contextmanager
def changed(owner: Any, name: str, value: object) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    yield
    setattr(owner, name, before)


@contextmanager
def znode(sound: Sound, path: str, old: bytes, new: bytes) -> Iterator[None]:
    found = sound.tree.get(path)
    assert old in found.payload, found.payload
    with changed(found, "payload", found.payload.replace(old, new)):
        yield


@contextmanager
def another_znode(sound: Sound, path: str) -> Iterator[None]:
    """Somebody's znode, unseen by anybody."""
    sound.tree.write(Create(path), session=1, now_ms=0)
    yield
    sound.tree.write(Delete(path), session=1, now_ms=0)


@contextmanager
def another_byte(path: Path, at: int) -> Iterator[None]:
    content = path.read_bytes()
    path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
    yield
    path.write_bytes(content)


@contextmanager
def without(table: dict[Any, Any], key: Any) -> Iterator[None]:
    taken = table.pop(key)
    yield
    table[key] = taken


@contextmanager
def with_row(table: dict[Any, Any], key: Any, value: Any) -> Iterator[None]:
    before = table.get(key)
    table[key] = value
    yield
    if before is None:
        del table[key]
    else:
        table[key] = before


@contextmanager
def an_event(sound: Sound, event: dict[str, Any]) -> Iterator[None]:
    sound.cluster.events.append((0.0, "error", event))
    yield
    sound.cluster.events.pop()


@contextmanager
def an_unclean_election(sound: Sound) -> Iterator[None]:
    sound.history.against_consent.append("t-0")
    yield
    sound.history.against_consent.clear()


def _led_by_two(sound: Sound) -> Any:
    return changed(sound.follower, "led", sound.leader.led)


#: (oracle, what is broken, how, a part of the complaint)
BROKEN: list[tuple[Callable[..., Iterator[str]], str, Callable[[Sound], Any], str]] = [
    (
        brokers.leader_is_zookeepers,
        "a leader epoch that nobody wrote",
        lambda s: changed(s.follower, "leader_epoch", 99),
        "an epoch of the future",
    ),
    (brokers.leader_is_zookeepers, "two leaders of an epoch", _led_by_two, "it leads in another's epoch"),
    (
        brokers.offsets_are_in_order,
        "a watermark above the end",
        lambda s: changed(s.follower, "_follower_hw", s.follower.log.leo + 1),
        "offsets out of order",
    ),
    (
        brokers.offsets_are_in_order,
        "a recovery point above the end",
        lambda s: changed(s.follower.log, "recovery_point", s.follower.log.leo + 1),
        "recovery point",
    ),
    (
        brokers.offsets_are_in_order,
        "a leader that takes another end for its own",
        lambda s: changed(s.leader.led, "log_end_offset", 0),
        "the leader takes 0 for its end",
    ),
    (
        brokers.isr_members_hold_what_is_committed,
        "a watermark above the end of an ISR member",
        lambda s: changed(s.leader.led, "high_watermark", s.follower.log.leo + 1),
        "ISR member 2 ends at",
    ),
    (
        partial(logs.logs_agree_below_watermarks, tail=None),
        "another epoch in a batch of a follower",
        lambda s: another_byte(s.follower.log.segments[0].log_path, 15),
        "differ at offset 0",
    ),
    (
        logs.epochs_equal_the_log,
        "an epoch cache of another history",
        lambda s: changed(s.follower.log.epochs, "entries", [(99, 0)]),
        "the cache says 99",
    ),
    (
        logs.epochs_equal_the_log,
        "an epoch that begins above the end",
        lambda s: changed(s.follower.log.epochs, "entries", [*s.follower.log.epochs.entries, (99, 10**6)]),
        "an epoch begins above the end",
    ),
    (
        partial(logs.logs_are_whole, tail=None),
        "a byte that is another",
        lambda s: another_byte(s.follower.log.segments[0].log_path, s.follower.log.segments[0].size - 1),
        "checksum",
    ),
    (
        logs.recovery_points_are_synced,
        "a recovery point ahead of the sync",
        lambda s: with_row(s.cluster.disks[2]._synced, str(s.follower.log.segments[0].log_path), 1),
        "1 bytes are synced",
    ),
    (
        brokers.metadata_is_zookeepers,
        "an ISR that brokers do not know",
        lambda s: znode(s, STATE, b'"isr":[1,2,3]', b'"isr":[1,2]'),
        "ZooKeeper says",
    ),
    (
        brokers.metadata_is_zookeepers,
        "a broker that brokers do not know",
        lambda s: changed(s.cluster.brokers[1].context.metadata, "_alive", frozenset({1, 2})),
        "takes [1, 2] for alive",
    ),
    (
        brokers.metadata_is_zookeepers,
        "a topic that brokers do not know",
        lambda s: without(known_topics(s), TOPIC),
        "too few",
    ),
    (
        brokers.replicas_are_the_assigned_ones,
        "a replica that is not there",
        lambda s: without(s.cluster.brokers[2].replicas.table.partitions, TP),
        "does not host",
    ),
    (
        brokers.replicas_are_the_assigned_ones,
        "a replica left over",
        lambda s: znode(s, f"/brokers/topics/{TOPIC}", b"[1,2,3]", b"[1,2]"),
        "broker 3 hosts",
    ),
    (
        zookeeper.one_controller_serves_an_epoch,
        "an office that somebody else won",
        lambda s: with_row(s.history.epoch_winners, s.active.epoch, "controller-99"),
        "which controller-99 won",
    ),
    (
        zookeeper.leaders_come_from_the_isr,
        "a leader that was not in sync",
        lambda s: an_unclean_election(s),
        "an unclean election that nothing allows",
    ),
    (
        zookeeper.the_office_watches,
        "a list that is not watched",
        lambda s: without(s.cluster.world.zookeeper.watches._child, "/brokers/ids"),
        "children of /brokers/ids",
    ),
    (
        zookeeper.the_office_watches,
        "a topic that is not watched",
        lambda s: without(s.cluster.world.zookeeper.watches._data, f"/brokers/topics/{TOPIC}"),
        f"does not watch /brokers/topics/{TOPIC}",
    ),
    (
        zookeeper.admin_work_is_done,
        "a notice that waits",
        lambda s: another_znode(s, "/isr_change_notification/isr_change_0000000099"),
        "/isr_change_notification still has",
    ),
    (
        zookeeper.admin_work_is_done,
        "a reassignment that waits",
        lambda s: another_znode(s, "/admin/reassign_partitions"),
        "is still there",
    ),
    (
        zookeeper.isrs_are_the_replicas,
        "a member of the ISR too few",
        lambda s: znode(s, STATE, b'"isr":[1,2,3]', b'"isr":[1,2]'),
        "has the replicas [1, 2, 3] and the state",
    ),
    (
        zookeeper.isrs_are_the_replicas,
        "a member of the ISR that is no replica",
        lambda s: znode(s, f"/brokers/topics/{TOPIC}", b"[1,2,3]", b"[1,2]"),
        "its replicas are [1, 2]",
    ),
    (
        zookeeper.who_is_not_in_office_is_silent,
        "a channel that outlived the office",
        lambda s: changed(s.idle.channels, "_channels", {1: SimpleNamespace(gauges=lambda: None)}),
        "is not in office and keeps channels to [1]",
    ),
    (
        brokers.leaders_know_their_epoch,
        "a leader whose log does not know its epoch",
        lambda s: changed(s.leader.log.epochs, "entries", [(99, 0)]),
        "its log knows 99",
    ),
    (
        zookeeper.leaders_are_preferred,
        "a leader that is not the first replica",
        lambda s: znode(s, STATE, b'"leader":1', b'"leader":2'),
        "is led by 2",
    ),
    (
        figures.gauges_equal_a_recount,
        "a counter that missed a change",
        lambda s: changed(s.active, "_imbalanced", {TP}),
        "PreferredReplicaImbalanceCount is 1, counted 0",
    ),
    (
        figures.gauges_equal_zookeeper,
        "a broker too few",
        lambda s: without(s.active.live_brokers, 3),
        "ActiveBrokerCount is 2, should be 3",
    ),
    (
        figures.believed_is_zookeepers,
        "an ISR that the controller does not know",
        lambda s: znode(s, STATE, b'"isr":[1,2,3]', b'"isr":[1,2]'),
        "believes",
    ),
    (
        figures.believed_is_zookeepers,
        "a version that the controller does not know",
        lambda s: changed(s.tree.get(STATE), "version", 99),
        "ZooKeeper says (1, 0, [1, 2, 3], 99)",
    ),
    (
        figures.believed_is_zookeepers,
        "a partition that the controller does not know",
        lambda s: changed(s.tree.get(f"/brokers/topics/{TOPIC}"), "payload", b'{"partitions":{"0":[1,2,3],"1":[1]}}'),
        "knows of some of [TopicPartition(topic='t', partition=1)]",
    ),
    (
        figures.nobody_faulted,
        "an event that ended in an exception",
        lambda s: an_event(s, {"event": ev.CONTROLLER_FAULTED}),
        ev.CONTROLLER_FAULTED,
    ),
    (
        figures.nobody_faulted,
        "a transition that the tables do not have",
        lambda s: an_event(
            s, {"event": ev.TRANSITION_REFUSED, "from": "OnlineReplica", "to": "ReplicaDeletionStarted"}
        ),
        ev.TRANSITION_REFUSED,
    ),
]


@pytest.mark.parametrize(
    ("fields", "is_excused"),
    [
        ({"exc_info": ZkRefused("/x", ZkCode.NO_AUTH)}, True),
        ({"exc_info": ZnodeError("/x does not parse")}, True),
        ({"reason": repr(ZkRefused("/x", ZkCode.NO_AUTH))}, True),
        ({"exc_info": KeyError(1)}, False),
        ({"exc_info": AssertionError()}, False),
        ({"reason": repr(KeyError(1))}, False),
        ({"reason": f"CancelTimers() failed: {TypeError('x')!r}"}, False),
    ],
)
def test_a_refusal_of_zookeepers_excuses_no_fault_of_the_code(fields: dict[str, Any], is_excused: bool) -> None:
    event = (0.0, "error", {"event": ev.CONTROLLER_FAULTED, **fields})
    cluster: Any = SimpleNamespace(events=[event], provoked=[], refused={"/x"}, line=lambda *_: "")
    history: Any = None
    assert (not list(figures.nobody_faulted(cluster, history))) is is_excused
    cluster.refused = set()
    assert list(figures.nobody_faulted(cluster, history))


def test_what_a_program_was_made_to_complain_of_is_no_fault(tmp_path: Path) -> None:
    def look(sound: Sound) -> None:
        error = OSError("the socket does not close")
        with an_event(sound, {"event": ev.CONTROLLER_FAULTED, "exc_info": error}):
            assert list(figures.nobody_faulted(sound.cluster, sound.history))
            sound.cluster.provoked.append(error)
            assert not list(figures.nobody_faulted(sound.cluster, sound.history))

    at_rest(tmp_path, look)


def at_rest(folder: Path, look: Callable[[Sound], Awaitable[None] | None], seed: int = 7, **options: int) -> None:
    """A cluster with records, all healthy and without load, and then `look`."""
    plan = Plan(seed=seed, shape=replace(SHAPE, **options), weights={}, steps=())

    async def scenario(world: World) -> None:
        play = Play(world, folder, plan, Outcome(plan=plan))
        with play.cluster.logging():
            await play.cluster.start()
            await play.cluster.create_topic(TOPIC, [[1, 2, 3]])
            play.start_clients()
            await world.sleep(5)
            await play.heal()
            await play.stop_clients()
            await play.rest()
            if (looks := look(Sound(play))) is not None:
                await looks
            for number in (*play.cluster.brokers, *play.cluster.controllers):
                play.cluster.kill(number)

    run_world(seed, scenario)


def test_each_oracle_sees_what_it_is_for(tmp_path: Path) -> None:
    def look(sound: Sound) -> None:
        assert sound.follower.log.leo > 0
        for oracle, what, broken, complaint in BROKEN:
            before = list(oracle(sound.cluster, sound.history))
            assert not before, (what, before)
            with broken(sound):
                seen = list(oracle(sound.cluster, sound.history))
            assert any(complaint in line for line in seen), (what, seen)
            assert not list(oracle(sound.cluster, sound.history)), (what, "is not undone")

    at_rest(tmp_path, look)


@pytest.mark.parametrize(("first", "is_again", "complains"), [(0, True, False), (0, False, True), (1, True, True)])
def test_epochs_of_a_former_topic_may_be_forgotten(tmp_path: Path, first: int, is_again: bool, complains: bool) -> None:
    """The log of a replica was left behind, and its records are of epoch 0, as is the one of the new topic."""

    def look(sound: Sound) -> None:
        sound.cluster.deletable |= {TOPIC} if is_again else set()
        with changed(sound.follower.log.epochs, "entries", [(first, sound.follower.log.leo)]):
            seen = list(logs.epochs_equal_the_log(sound.cluster, sound.history))
        assert ["the cache says -1" in line for line in seen] == [True] * complains

    at_rest(tmp_path, look)


@pytest.mark.parametrize(("led", "is_again", "complains"), [(0, True, False), (0, False, True), (1, True, True)])
def test_no_epoch_may_be_known_of_a_log_of_a_former_topic(
    tmp_path: Path, led: int, is_again: bool, complains: bool
) -> None:
    """It led the new one without a record, and then followed a leader whose own epoch begins at the same offset."""

    def look(sound: Sound) -> None:
        sound.cluster.deletable |= {TOPIC} if is_again else set()
        with changed(sound.follower.log.epochs, "entries", []), changed(sound.follower, "leader_epoch", led):
            seen = list(logs.epochs_equal_the_log(sound.cluster, sound.history))
        assert ["the cache says -1" in line for line in seen] == [True] * complains

    at_rest(tmp_path, look)


@pytest.mark.parametrize(("last", "is_again", "complains"), [(0, True, False), (0, False, True), (3, True, True)])
def test_epochs_that_begin_again_are_those_of_a_later_topic(
    tmp_path: Path, last: int, is_again: bool, complains: bool
) -> None:
    """A start has found the epochs of the former one."""

    def look(sound: Sound) -> None:
        sound.cluster.deletable |= {TOPIC} if is_again else set()
        log = sound.follower.log
        entries = [*log.epochs.entries, (2, log.leo)]
        for epoch in (2, last):
            log.append_as_leader(build_batch([Record(0, 1, None, b"again")]), leader_epoch=epoch, now_ms=1)
        with changed(log.epochs, "entries", entries):
            seen = list(logs.epochs_equal_the_log(sound.cluster, sound.history))
        assert [f"have epoch {last}, the cache says 2" in line for line in seen] == [True] * complains

    at_rest(tmp_path, look)


def test_who_was_not_told_of_a_deletion_before_the_term_ended_may_know_the_topic(tmp_path: Path) -> None:
    def look(sound: Sound) -> None:
        cluster, history, gone = sound.cluster, sound.history, TopicPartition("gone", 0)
        requests, entry = Requests(cluster, history), sound.cluster.brokers[1].context.metadata.partition(TP)
        assert entry is not None
        last = UpdateMetadataRequest(
            to=BrokerId(1),
            controller_id=BrokerId(sound.number),
            controller_epoch=history.controller_epoch,
            broker_epoch=max(history.broker_epochs[1]),
            partition_states=[UpdateMetadataEntry(gone, entry.state, (), being_deleted=True)],
            live_brokers=(),
        )

        def known_too_much() -> bool:
            with with_row(known_topics(sound), "gone", {0: entry}):
                seen = list(brokers.metadata_is_zookeepers(cluster, history))
            return any("too many" in line for line in seen)

        assert known_too_much()
        requests.check(sound.number, [last])
        assert known_too_much(), "whoever is in office tells it"
        with changed(history, "controller_epoch", history.controller_epoch + 1):
            assert not known_too_much()
            requests.delivered(sound.number, last)
            assert known_too_much(), "it was told"

    at_rest(tmp_path, look)


def test_no_oracle_is_left_out() -> None:
    """An oracle that nothing here breaks may see nothing at all."""
    used = {getattr(oracle, "func", oracle) for oracle in AT_REST}
    used -= {groups.offsets_count_once_they_are_committed}  # in test_lives_and_consent.py
    used -= {brokers.leaders_isr_was_written, disks.logs_start_with_their_leader}
    used -= {disks.checkpoints_claim_no_more_than_there_is, groups.nobody_waits_who_was_answered}  # in test_dirs.py
    used -= {disks.moving_logs_have_a_replica, disks.moving_logs_agree}  # in test_replication.py
    used -= {*settled.SETTLED}  # in test_settled.py
    assert {getattr(oracle, "func", oracle) for oracle, *_ in BROKEN} == used


def test_what_the_wrong_one_writes_is_seen(tmp_path: Path) -> None:
    def look(sound: Sound) -> None:
        cluster, history = sound.cluster, sound.history
        active = cluster.machine(sound.number).name
        idle = next(cluster.machine(n).name for n in cluster.controller_ids if n != sound.number)
        topic = f"/brokers/topics/{TOPIC}"
        emptied = b'{"version":3,"partitions":{"0":[]},"adding_replicas":{},"removing_replicas":{}}'
        moving = b'{"version":3,"partitions":{"0":[3,1,2]},"adding_replicas":{"0":[3]},"removing_replicas":{"0":[1]}}'
        moved = b'{"version":3,"partitions":{"0":[3,2]},"adding_replicas":{},"removing_replicas":{}}'
        growing = b'{"version":3,"partitions":{"0":[1,2,3,4]},"adding_replicas":{"0":[4]},"removing_replicas":{}}'
        grown = b'{"version":3,"partitions":{"0":[1,2,3,4]},"adding_replicas":{},"removing_replicas":{}}'
        cancelled = b'{"version":3,"partitions":{"0":[1,2,3]},"adding_replicas":{},"removing_replicas":{}}'
        tree = cluster.world.zookeeper.tree
        tree.write(Create("/config/topics/x"), session=1, now_ms=0)
        settings = tree.get("/config/topics/x")
        assert settings is not None
        later = settings.czxid + 1
        history.topics["x"] = later, {}
        history.marked.add(("x", later))
        table: list[tuple[str, list[SetData | Delete], str]] = [
            (active, [SetData(STATE, b"{}")], ""),
            ("broker-1", [SetData(STATE, b"{}")], ""),
            (idle, [SetData(STATE, b"{}")], f"{idle} wrote"),
            (idle, [Delete("/admin/delete_topics/x")], f"{idle} wrote"),
            (active, [Delete(f"/admin/delete_topics/{TOPIC}")], "went before its znode"),
            (active, [Delete(topic)], "nobody asked for its deletion"),
            (active, [Delete("/brokers/topics/x"), Delete("/admin/delete_topics/x")], "went before its settings"),
            (active, [Delete("/admin/delete_topics/x")], ""),
            (active, [SetData(topic, emptied)], "has the replicas []"),
            (active, [SetData(topic, moving), SetData(topic, moved)], "ended with ISR [1, 2, 3]"),
            (active, [SetData(topic, growing), SetData(topic, growing), SetData(topic, grown)], "its ISRs were [("),
            (active, [SetData(topic, growing), SetData(topic, cancelled)], ""),
        ]
        for machine, ops, complaint in table:
            writes = zookeeper.Writes(cluster, history)
            session: Any = SimpleNamespace(machine=machine)
            for op in ops:
                writes.operation(session, op, ZkResult(ZkCode.OK))
            assert [complaint in line for line in writes.broken] == ([True] if complaint else []), (ops, writes.broken)
            refused = zookeeper.Writes(cluster, history)
            refused.operation(session, ops[0], ZkResult(ZkCode.BAD_VERSION))
            assert not refused.broken, "what was refused was not written"
        tree.write(Delete("/config/topics/x"), session=1, now_ms=0)
        del history.topics["x"]

    at_rest(tmp_path, look)


def requests_of(sound: Sound) -> list[tuple[str, list[Any], str]]:
    """(what, a batch, the complaint)."""
    state = sound.history.states[TP][-1]
    leadership = LeaderAndIsr(
        leader=BrokerId(state.leader),
        isr=tuple(map(BrokerId, state.isr)),
        leader_epoch=state.leader_epoch,
        partition_epoch=state.version,
        controller_epoch=state.controller_epoch,
    )
    unwritten = LeaderAndIsr(
        leader=BrokerId(2), isr=leadership.isr, leader_epoch=99, partition_epoch=99, controller_epoch=1
    )
    old = sound.history.states[TP][0]
    older = LeaderAndIsr(
        leader=BrokerId(old.leader),
        isr=tuple(map(BrokerId, old.isr)),
        leader_epoch=old.leader_epoch,
        partition_epoch=old.version - 1,
        controller_epoch=1,
    )
    replicas = ReplicaAssignment(replicas=(BrokerId(1), BrokerId(2), BrokerId(3)))
    controllers_epoch = sound.active.epoch

    def head(to: int = 2, epoch: int = controllers_epoch, broker_epoch: int | None = None) -> dict[str, Any]:
        registered = max(sound.history.broker_epochs[to])
        return {
            "to": BrokerId(to),
            "controller_id": BrokerId(sound.number),
            "controller_epoch": epoch,
            "broker_epoch": registered if broker_epoch is None else broker_epoch,
        }

    def leaders(state: LeaderAndIsr = leadership, given: ReplicaAssignment = replicas, **how: Any) -> Any:
        entry = LeaderAndIsrEntry(topic_partition=TP, state=state, assignment=given)
        live = tuple(sound.active.live_brokers.values())
        return LeaderAndIsrRequest(**head(**how), partition_states=(entry,), live_leaders=live)

    def metadata(state: LeaderAndIsr = leadership) -> Any:
        entry = UpdateMetadataEntry(topic_partition=TP, state=state, replicas=replicas.replicas)
        return UpdateMetadataRequest(**head(), partition_states=(entry,), live_brokers=())

    def stop(epoch: int = -1, *, delete: bool) -> Any:
        entry = StopReplicaEntry(topic_partition=TP, leader_epoch=epoch, delete_partition=delete)
        return StopReplicaRequest(**head(), partition_states=(entry,))

    return [
        ("a sound batch", [leaders(), metadata(), stop(delete=False)], ""),
        ("a batch out of order", [metadata(), leaders()], "comes after a later kind"),
        ("an epoch that it never won", [leaders(epoch=77)], "carries epoch 77"),
        ("a broker epoch of nobody", [leaders(broker_epoch=1)], "carries broker epoch 1"),
        ("a leader before it is written", [leaders(unwritten)], "was never written"),
        ("metadata before it is written", [metadata(unwritten)], "was never written"),
        (
            "a broker that has no replica",
            [leaders(given=ReplicaAssignment(replicas=(BrokerId(1),)))],
            "whose replicas are",
        ),
        ("an older state after a newer", [leaders(), leaders(older)], "was never written"),
        ("a replica deleted that is assigned", [stop(delete=True)], "deletes"),
        ("a deletion that nobody asked for", [stop(-2, delete=True)], "nobody asked for it"),
    ]


def test_requests_that_must_not_be_sent_are_seen(tmp_path: Path) -> None:
    def look(sound: Sound) -> None:
        for what, batch, complaint in requests_of(sound):
            requests = Requests(sound.cluster, sound.history)
            requests.check(sound.number, batch)
            if complaint:
                assert any(complaint in line for line in requests.broken), (what, requests.broken)
            else:
                assert not requests.broken, (what, requests.broken)
        assert sound.play.watchers.requests.seen > 5, "real ones are looked at, too"

    at_rest(tmp_path, look)


def test_a_broker_is_never_told_older_epochs(tmp_path: Path) -> None:
    def look(sound: Sound) -> None:
        rows: Sequence[Any] = sound.history.states[TP]
        newest = rows[-1]
        sound.history.states[TP].append(type(newest)(*(newest.incarnation, newest.version + 1, 2, 50, 1, newest.isr)))
        requests = Requests(sound.cluster, sound.history)
        for version, leader, epoch in ((newest.version + 1, 2, 50), (newest.version, newest.leader, None)):
            state = LeaderAndIsr(
                leader=BrokerId(leader),
                isr=tuple(map(BrokerId, newest.isr)),
                leader_epoch=newest.leader_epoch if epoch is None else epoch,
                partition_epoch=version,
                controller_epoch=1,
            )
            replicas = ReplicaAssignment(replicas=(BrokerId(1), BrokerId(2), BrokerId(3)))
            entry = LeaderAndIsrEntry(topic_partition=TP, state=state, assignment=replicas)
            request = LeaderAndIsrRequest(
                to=BrokerId(2),
                controller_id=BrokerId(sound.number),
                controller_epoch=sound.active.epoch,
                broker_epoch=max(sound.history.broker_epochs[2]),
                partition_states=(entry,),
                live_leaders=tuple(sound.active.live_brokers.values()),
            )
            requests.check(sound.number, [request])
        assert len(requests.broken) == 1 and "after (50," in requests.broken[0], requests.broken

    at_rest(tmp_path, look)


def test_a_history_knows_an_unclean_election(tmp_path: Path) -> None:
    def look(sound: Sound) -> None:
        content = sound.tree.get(STATE).payload
        for payload, unclean in ((content.replace(b'"isr":[1,2,3]', b'"isr":[1,3]'), False), (content, False)):
            sound.tree.get(STATE).payload = payload
            sound.history.changed(STATE)
            assert (TP in sound.history.unclean) is unclean
        sound.tree.get(STATE).payload = content.replace(b'"isr":[1,2,3]', b'"isr":[1]')
        sound.history.changed(STATE)
        outside = content.replace(b'"isr":[1,2,3]', b'"isr":[2]').replace(b'"leader":1', b'"leader":2')
        sound.tree.get(STATE).payload = outside
        sound.history.changed(STATE)
        assert TP in sound.history.unclean

    at_rest(tmp_path, look)


def test_who_the_leader_does_not_count_is_excused_until_it_has_all_again(tmp_path: Path) -> None:
    """2 is in the ISR and, while a move removes it, none of the leader's replicas; then it is one again."""

    def look(sound: Sound) -> None:
        def seen() -> list[str]:
            return list(brokers.isr_members_hold_what_is_committed(sound.cluster, sound.history))

        led = sound.leader.led
        with without(led.followers, BrokerId(2)), changed(led, "high_watermark", sound.follower.log.leo + 1):
            (other,) = seen()
            assert "ISR member 3 ends at" in other
        with changed(led, "high_watermark", sound.follower.log.leo + 1):
            assert len(seen()) == 1, "it lacks still what was committed without it"
        assert seen() == []
        with changed(led, "high_watermark", sound.follower.log.leo + 1):
            assert len(seen()) == 2, "it has all again, and is counted"

    at_rest(tmp_path, look)


def test_a_leader_that_was_not_counted_may_lack_what_is_committed(tmp_path: Path) -> None:
    def look(sound: Sound) -> None:
        elected = sound.tree.get(STATE).payload.replace(b'"leader":1', b'"leader":2')
        sound.tree.get(STATE).payload = elected
        for not_counted in ([], [(TP, 2)]):
            sound.history.not_counted = set(not_counted)
            sound.history.changed(STATE)
            assert (TP in sound.history.unclean) == bool(not_counted)

    at_rest(tmp_path, look)
