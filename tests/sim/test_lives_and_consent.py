"""Oracles that follow what happens over time: lives, order on the wire, consents, transitions, offsets, calm."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker_sim.groups.records import CommittedOffset
from controller.core.transitions import PARTITION_TRANSITIONS, REPLICA_TRANSITIONS
from controller.node.channels import ChannelGauges
from controller.sim.history import CONSENT_LASTS_S, History
from controller.sim.load.group_probes import NO_COORDINATOR, GroupProbes
from controller.sim.oracles import brokers, groups, logs
from controller.sim.oracles.calm import CALM_S, Calm
from controller.sim.oracles.requests import Requests
from controller.sim.oracles.transitions import PARTITIONS, REPLICAS, Transitions
from controller.wire import log_events as ev
from controller.wire.control import (
    LeaderAndIsrEntry,
    LeaderAndIsrRequest,
    StopReplicaEntry,
    StopReplicaRequest,
    UpdateMetadataEntry,
    UpdateMetadataRequest,
)
from controller.wire.errors import ErrorCode
from controller.wire.records import batches
from controller.wire.times import Times
from controller.wire.types import BrokerId, LeaderAndIsr, ReplicaAssignment, TopicPartition
from controller.wire.zk_operations import Create, SetData, WatchEvent, WatchKind
from controller.world.simulated.znode_tree import ZnodeTree
from tests.sim.test_oracles import STATE, TP, Sound, another_byte, at_rest, changed, with_row

pytestmark = pytest.mark.sim


def head(sound: Sound, broker_epoch: int) -> dict[str, Any]:
    return {
        "to": BrokerId(1),
        "controller_id": BrokerId(sound.number),
        "controller_epoch": sound.active.epoch,
        "broker_epoch": broker_epoch,
    }


def to_lead(sound: Sound, broker_epoch: int) -> LeaderAndIsrRequest:
    newest = sound.history.states[TP][-1]
    state = LeaderAndIsr(
        leader=BrokerId(newest.leader),
        isr=tuple(map(BrokerId, newest.isr)),
        leader_epoch=newest.leader_epoch,
        partition_epoch=newest.version,
        controller_epoch=newest.controller_epoch,
    )
    replicas = ReplicaAssignment(replicas=(BrokerId(1), BrokerId(2), BrokerId(3)))
    entry = LeaderAndIsrEntry(topic_partition=TP, state=state, assignment=replicas)
    live = tuple(sound.active.live_brokers.values())
    return LeaderAndIsrRequest(**head(sound, broker_epoch), partition_states=(entry,), live_leaders=live)


def to_stop(sound: Sound, broker_epoch: int) -> StopReplicaRequest:
    entry = StopReplicaEntry(topic_partition=TP, leader_epoch=-1, delete_partition=False)
    return StopReplicaRequest(**head(sound, broker_epoch), partition_states=(entry,))


def test_a_new_life_does_not_lead_in_an_old_epoch(tmp_path: Path) -> None:
    def look(sound: Sound) -> None:
        requests = Requests(sound.cluster, sound.history)
        life = max(sound.history.broker_epochs[1])
        sound.history.broker_epochs[1].add(life + 7)
        requests.check(sound.number, [to_lead(sound, life)])
        requests.check(sound.number, [to_lead(sound, life)])
        assert not requests.broken
        requests.check(sound.number, [to_lead(sound, life + 7)])
        assert len(requests.broken) == 1 and "in the old epoch" in requests.broken[0]

    at_rest(tmp_path, look)


def test_what_was_queued_first_does_not_come_last(tmp_path: Path) -> None:
    def look(sound: Sound) -> None:
        life = max(sound.history.broker_epochs[1])
        lead, stop = to_lead(sound, life), to_stop(sound, life)
        for order, is_late in (((lead, stop), False), ((stop,), False), ((lead,), False), ((stop, lead), True)):
            requests = Requests(sound.cluster, sound.history)
            requests.check(sound.number, [lead, stop])
            for request in order:
                requests.delivered(sound.number, request)
            assert bool(requests.broken) is is_late, (order, requests.broken)

    at_rest(tmp_path, look)


def test_no_channel_gives_up_a_request(tmp_path: Path) -> None:
    def look(sound: Sound) -> None:
        requests, channels = Requests(sound.cluster, sound.history), sound.cluster.controllers[sound.number].channels
        life, gauges = max(sound.history.broker_epochs[1]), ChannelGauges(queue=Times(1), requests=1)
        requests.watch(sound.number, sound.cluster.controllers[sound.number])
        lead = to_lead(sound, life)
        with changed(channels, "gauges", lambda: {1: gauges}):
            assert "is done with 1 requests to 1, 0 answered" in next(requests.given_up())
            requests.check(sound.number, [lead])
            requests.delivered(sound.number, lead)
            assert not list(requests.given_up())
            channels.remove([BrokerId(1)])
            assert list(requests.given_up()), "the next channel counts anew"

    at_rest(tmp_path, look)


def test_a_log_with_a_gap_or_another_byte_is_not_whole(tmp_path: Path) -> None:
    def look(sound: Sound) -> None:
        log = sound.follower.log
        assert not list(logs.logs_are_whole(sound.cluster, sound.history, tail=None))
        size = log.segments[0].size
        with another_byte(log.segments[0].log_path, size - 1):
            (found,) = logs.logs_are_whole(sound.cluster, sound.history, tail=None)
            assert "checksum" in found
        with changed(log, "leo", log.leo + 5), changed(log.segments[0], "next_offset", log.leo + 5):
            (found,) = logs.logs_are_whole(sound.cluster, sound.history)
            assert "nothing can be read from" in found
            with changed(sound.cluster, "was_before_its_topic", lambda number, tp: tp != TP):
                assert list(logs.logs_are_whole(sound.cluster, sound.history)), "logs of other partitions are"
            with changed(sound.cluster, "was_before_its_topic", lambda number, tp: (number, tp) == (1, TP)):
                assert not list(logs.logs_are_whole(sound.cluster, sound.history)), "one is of a former topic"
            assert not list(logs.logs_are_whole(sound.cluster, sound.history)), "as it was, what it has copied stays"

    at_rest(tmp_path, look)


def test_a_log_may_lack_what_its_leader_lost_and_wrote_anew_in_the_same_epoch(tmp_path: Path) -> None:
    def look(sound: Sound) -> None:
        path, written = sound.follower.log.segments[0].log_path, sound.history.states[TP][-1]
        *_, (last, header) = batches(path.read_bytes())
        looks = partial(logs.logs_are_whole, sound.cluster, sound.history)
        with another_byte(path, last + 7):  # its base offset, by one
            assert any("are missing" in found for found in looks())
            sound.history.power_lost(2)
            assert any("are missing" in found for found in looks()), "broker 2 does not lead"
            sound.history.power_lost(written.leader)
            assert sound.history.epochs_of_losers[TP] == {header.partition_leader_epoch}
            assert not any("are missing" in found for found in looks())

    at_rest(tmp_path, look)


def test_a_leader_whose_log_starts_above_its_watermark(tmp_path: Path) -> None:
    def look(sound: Sound) -> None:
        with (
            changed(sound.leader.log, "log_start_offset", sound.leader.log.leo),
            changed(sound.leader.led, "high_watermark", sound.leader.log.leo - 1),
        ):
            found = list(brokers.offsets_are_in_order(sound.cluster, sound.history))
        assert any("starts above its watermark" in line for line in found)

    at_rest(tmp_path, look)


def test_an_offset_is_not_told_before_it_is_committed(tmp_path: Path) -> None:
    """Another watermark and another answer of the coordinator, for a commit that is under way."""

    def look(sound: Sound) -> None:
        for name, partition in [tp for tp in sound.cluster.partitions() if tp[0] == "__consumer_offsets"]:
            tp = TopicPartition(name, partition)
            leader = sound.cluster.state(*tp)["leader"]
            registry = sound.cluster.brokers[leader].context.groups.registry
            replica = sound.cluster.brokers[leader].replicas.table.partitions[tp]
            for entry in registry.entries():
                if registry.partition_of(entry.group.group_id) == partition and entry.offsets:
                    with changed(entry, "commits_under_way", [{}]):
                        assert not list(groups.offsets_count_once_they_are_committed(sound.cluster, sound.history))
                        with changed(replica.led, "high_watermark", 0):
                            (*_, found) = groups.offsets_count_once_they_are_committed(sound.cluster, sound.history)
                            assert "is not committed in" in found
                            with changed(replica.led, "epoch_start", replica.log.leo):  # a second term of that epoch
                                seen = groups.offsets_count_once_they_are_committed(sound.cluster, sound.history)
                                assert not list(seen)
                        told = {TP: CommittedOffset(offset=-77)}
                        with changed(entry, "offsets", told):
                            assert not list(groups.offsets_count_once_they_are_committed(sound.cluster, sound.history))
                    return
        raise AssertionError("no coordinator has a group with offsets")

    at_rest(tmp_path, look, consumers=1)


def state(leader: int, isr: list[int], epoch: int) -> bytes:
    content = f'{{"controller_epoch":1,"leader":{leader},"version":1,"leader_epoch":{epoch},"isr":{isr}}}'
    return content.encode()


@pytest.mark.parametrize(
    ("by_default", "settings", "asked", "allowed"),
    [
        (False, [], False, False),
        (True, [], False, True),
        (True, [(0, "false")], False, False),
        (False, [(0, "true")], False, True),
        (False, [(0, "true"), (50, "false")], False, False),
        (False, [(0, "true"), (99 - CONSENT_LASTS_S, "false")], False, False),
        (False, [(0, "true"), (101 - CONSENT_LASTS_S, "false")], False, True),
        (True, [(0, "false"), (50, None)], False, True),
        (False, [], True, True),
    ],
)
def test_who_allows_an_unclean_election(
    by_default: bool, settings: list[tuple[float, str | None]], asked: bool, allowed: bool
) -> None:
    """At 100 s; what was read shortly before counts, too."""
    tree, now = ZnodeTree(), [0.0]
    for path in ("/brokers", "/brokers/topics", "/config", "/config/topics"):
        tree.write(Create(path), session=1, now_ms=0)
    for path in ("/brokers/topics/t", "/brokers/topics/t/partitions", "/brokers/topics/t/partitions/0"):
        tree.write(Create(path, b'{"version":1,"partitions":{"0":[1,2]}}'), session=1, now_ms=0)
    history, told = History(tree, lambda: now[0], unclean_by_default=by_default), list[object]()
    history.on_unclean = told.append

    def wrote(path: str, content: bytes) -> None:
        op = SetData(path, content) if tree.get(path) is not None else Create(path, content)
        history.commit(list(tree.write(op, session=1, now_ms=0).fires))

    wrote(STATE, state(1, [1], 0))
    for at_s, value in settings:
        now[0] = at_s
        config = "" if value is None else f'"unclean.leader.election.enable":"{value}"'
        wrote("/config/topics/t", f'{{"version":1,"config":{{{config}}}}}'.encode())
    now[0] = 100.0
    if asked:
        history.unclean_asked_s = 95.0
    assert told == []
    wrote(STATE, state(2, [2], 1))
    assert TP in history.unclean
    assert (told, history.unclean_epochs) == ([TP], {TP: 1})
    assert bool(history.against_consent) is not allowed


def test_a_setting_that_goes_with_its_znode() -> None:
    tree, now = ZnodeTree(), [0.0]
    history = History(tree, lambda: now[0])
    history.commit([WatchEvent(WatchKind.DELETED, "/config/topics/t")])
    now[0] = 100.0
    assert not history.allows_unclean("t")


def test_the_tables_of_transitions_are_those_of_the_core() -> None:
    """Two copies, from one text."""
    assert {
        f"{before.kafka_name} -> {after.kafka_name}"
        for after, allowed in PARTITION_TRANSITIONS.items()
        for before in allowed
    } == PARTITIONS
    assert {
        f"{before.kafka_name} -> {after.kafka_name}"
        for after, allowed in REPLICA_TRANSITIONS.items()
        for before in allowed
    } == REPLICAS


def test_a_transition_that_no_table_has() -> None:
    transitions = Transitions({})
    transitions.event({"event": ev.REPLICAS_TRANSITIONED, "transitions": {"NewReplica -> OnlineReplica": 2}})
    assert (transitions.judged, transitions.broken) == (1, [])
    transitions.event({"event": ev.PARTITIONS_TRANSITIONED, "transitions": {"NewPartition -> NonExistentPartition": 1}})
    assert len(transitions.broken) == 1


def shutdown_world(leader: int, isr: tuple[int, ...]) -> Any:
    """Broker 1 has a replica of `t-0`, which others have, too, of `alone-0`, and of a topic that is to be deleted; it
    leads `left-0`, from which a move has dropped it in vain."""
    replicas = {("t", 0): (1, 2, 3), ("alone", 0): (1,), ("goes", 0): (1, 2), ("left", 0): (2, 3)}
    view = SimpleNamespace(
        partitions_on=lambda broker: [TopicPartition(*tp) for tp, of in replicas.items() if broker in of],
        partitions_led_by=lambda broker: [TopicPartition(*tp) for tp in replicas],
        assignment=lambda tp: SimpleNamespace(replicas=replicas[tp]),
        leadership=lambda tp: SimpleNamespace(leader=leader, isr=isr) if tp.topic == "t" else None,
        is_begun=lambda tp, broker: True,
        is_queued_for_deletion=lambda topic: topic == "goes",
        serving=False,
    )
    return SimpleNamespace(state=view)


@pytest.mark.parametrize(
    ("leader", "isr", "remaining", "complaint"),
    [
        (2, (2, 3), [], ""),
        (1, (1, 2), ["t-0"], ""),
        (-1, (1,), [], ""),
        (2, (1, 2), [], "is in the ISR (1, 2) of t-0"),
        (1, (1, 2), ["t-0", "left-0"], ""),
        (1, (1, 2), ["alone-0"], "waits for ['alone-0']"),
        (1, (1, 2), ["goes-0"], "waits for ['goes-0']"),
    ],
)
def test_what_a_controlled_shutdown_leaves(
    leader: int, isr: tuple[int, ...], remaining: list[str], complaint: str
) -> None:
    transitions = Transitions({1001: shutdown_world(leader, isr)})
    transitions.event({"event": ev.SHUTDOWN_GRANTED, "controller": 1001, "broker": 1, "remaining": remaining})
    transitions.event({"event": ev.SHUTDOWN_GRANTED, "controller": 1002, "broker": 1, "remaining": ["x-0"]})
    assert transitions.judged == 1 and [complaint in line for line in transitions.broken] == [True] * bool(complaint)


REFUSED = ("/brokers/topics/t/partitions/0/state",)


@pytest.mark.parametrize(
    ("refused", "change", "excused"),
    [
        (REFUSED, {}, True),
        ((), {}, False),
        (REFUSED, {"replica": 2}, False),
        (REFUSED, {"partition": 1}, False),
        (REFUSED, {"controller": 1002}, False),
        (REFUSED, {"event": ev.PARTITION_ISR_REDUCED}, False),
    ],
    ids=["kept", "nothing was refused", "another replica", "another partition", "another controller", "not kept"],
)
def test_a_follower_may_go_that_zookeeper_keeps_in_the_isr(
    refused: tuple[str, ...], change: dict[str, Any], excused: bool
) -> None:
    """In the event that says so, and for this replica alone."""
    transitions = Transitions({1001: shutdown_world(2, (1, 2))}, refused)
    kept = {"event": ev.PARTITION_ISR_KEPT, "controller": 1001, "topic": "t", "partition": 0, "replica": 1, **change}
    granted = {"event": ev.SHUTDOWN_GRANTED, "controller": 1001, "broker": 1, "remaining": []}
    transitions.event(kept)
    transitions.event(granted)
    assert (transitions.broken == []) == excused
    transitions.event({"event": ev.CONTROLLER_EVENT_PROCESSED, "controller": 1001})
    transitions.event(granted)
    assert len(transitions.broken) == 1 + (not excused), "the next event begins anew"


def calm_after(
    sound: Sound,
    seconds: float,
    meanwhile: Callable[[], object] = lambda: None,
    logged: Sequence[dict[str, Any]] = (),
    logged_8_s_before: Mapping[str, Any] | None = None,
) -> list[str]:
    """What is complained of after so long. `logged`: what was logged before."""
    calm, loop = Calm(sound.cluster, sound.history), sound.cluster.world.loop
    for event in logged:
        calm.event(event)
    assert not list(calm.problems())
    meanwhile()
    with changed(loop, "_now", loop.time() + seconds - 8):
        calm.event(logged_8_s_before or {})
    with changed(loop, "_now", loop.time() + seconds):
        return list(calm.problems())


def test_calm_sees_what_nobody_mends(tmp_path: Path) -> None:
    def look(sound: Sound) -> None:
        long_s = CALM_S + 60
        assert calm_after(sound, long_s) == []
        found = sound.tree.get(STATE)
        with changed(found, "payload", found.payload.replace(b'"leader":1', b'"leader":-1')):
            assert any("is led by -1" in line for line in calm_after(sound, long_s))
            assert calm_after(sound, 1.0) == [], "not yet"
            waited, back = (
                {"event": event, "broker_id": 2} for event in (ev.BROKER_REGISTRATION_WAITED, ev.BROKER_REGISTERED)
            )
            assert calm_after(sound, long_s, logged=[waited]) == [], "it has started again, and is not there yet"
            assert calm_after(sound, long_s, logged=[waited, back]) and calm_after(
                sound, long_s, logged=[{**waited, "broker_id": 9}]
            ), "it is there, or never was"
            standing = sound.cluster.machine(2)
            assert calm_after(sound, long_s, standing.suspend) == [], "whoever stands still is no calm"
            assert calm_after(sound, long_s, standing.go_on) == [], "nor who stood still between two looks"
            quota = sound.quota
            quota.bound = 1
            assert any("is led by -1" in line for line in calm_after(sound, long_s)), "a bound for no partition"
            quota.set_throttled(TP.topic, "*")
            assert calm_after(sound, long_s) == [], "a throttle is no calm"
            quota.bound = None
            quota.set_throttled(TP.topic, "")
        with changed(found, "payload", found.payload.replace(b'"isr":[1,2,3]', b'"isr":[1,2,3,9]')):
            assert any("the dead in its ISR" in line for line in calm_after(sound, long_s))
        metadata = sound.cluster.brokers[1].context.metadata
        with changed(metadata, "_alive", frozenset({1, 2})):
            assert any("takes [1, 2] for alive" in line for line in calm_after(sound, long_s))
            with changed(sound.history, "last_isr_s", sound.cluster.world.loop.time() + long_s - 8):
                assert calm_after(sound, long_s) == [], "a leader has yet to tell of an ISR"
            for event, is_silent in ((ev.ISR_EXPANDED, True), (ev.ISR_SHRUNK, True), (ev.ISR_WRITE_REFUSED, False)):
                lines = calm_after(sound, long_s, logged_8_s_before={"event": event})
                assert (lines == []) is is_silent, f"a leader has just heard of its ISR: {event}"
            state = sound.cluster.controllers[sound.cluster.active_controller()].state
            with changed(sound.cluster.world.loop, "_now", sound.cluster.world.loop.time() + long_s):
                sound.history.changed(f"/brokers/topics/{TP.topic}")
            assert calm_after(sound, long_s) == [], "replicas were written just now"
            sound.history.last_written_s = 0.0
            with changed(state, "_moves_that_wait", {TP}):
                assert calm_after(sound, long_s) == [], "a move is to be tried again"
        with with_row(sound.cluster.disks[1].failing, tmp_path, 5):
            assert calm_after(sound, long_s) == [], "a broken disk is no calm"

    at_rest(tmp_path, look)


def test_calm_lets_a_dead_leader_be_named_that_zookeeper_kept(tmp_path: Path) -> None:
    """By this controller, since that leader died, and while nobody of the ISR lives."""

    def look(sound: Sound) -> None:
        sound.history.broker_epochs[9] = {7}
        found, epoch = sound.tree.get(STATE), sound.history.controller_epoch
        kept = {"event": ev.PARTITION_ISR_KEPT, "controller_epoch": epoch, **TP._asdict(), "replica": 9}

        def complains(**change: object) -> bool:
            lines = calm_after(sound, CALM_S + 60, logged=[kept | change])
            return any(line.endswith("t-0 is led by 9, which is dead") for line in lines)

        dead = found.payload.replace(b'"leader":1', b'"leader":9')
        with changed(found, "payload", dead.replace(b'"isr":[1,2,3]', b'"isr":[9]')):
            assert complains(), "nothing was refused"
            with changed(sound.cluster, "refused", {STATE}):
                assert not complains()
                for change in ({"replica": 8}, {"partition": 1}, {"topic": "u"}, {"event": ev.PARTITION_ISR_REDUCED}):
                    assert complains(**change), change
                assert complains(controller_epoch=epoch - 1), "the next controller tries again"
                back = partial(sound.history.broker_epochs[9].add, 8)
                assert any("led by 9" in line for line in calm_after(sound, CALM_S + 60, back, [kept])), "it was back"
        with changed(found, "payload", dead), changed(sound.cluster, "refused", {STATE}):
            assert complains(), "others of its ISR live"

    at_rest(tmp_path, look)


def test_the_dead_stay_in_the_isr_of_a_topic_that_was_learnt_late(tmp_path: Path) -> None:
    """It could not be read when this controller took office; those who live do not."""

    def look(sound: Sound) -> None:
        epoch = sound.history.controller_epoch
        unread = {"event": ev.ZK_DATA_REFUSED, "controller_epoch": epoch, "path": f"/brokers/topics/{TP.topic}"}

        def stays(replica: int, **change: object) -> bool:
            calm = Calm(sound.cluster, sound.history)
            calm.event(unread | change)
            return calm.was_kept(*TP, replica)

        assert stays(9) and not stays(2), "of those who are dead"
        for change in ({"path": "/brokers/topics/u"}, {"path": "/config/topics/t"}, {"event": ev.ISR_SHRUNK}):
            assert not stays(9, **change), change
        assert not stays(9, controller_epoch=epoch - 1), "the next controller has read it"

    at_rest(tmp_path, look)


def test_calm_sees_who_may_lead_where_any_replica_may(tmp_path: Path) -> None:
    def look(sound: Sound) -> None:
        def complains(allowed: str) -> bool:
            config = sound.tree.get(f"/config/topics/{TP.topic}")
            with changed(config, "payload", b'{"config":{"unclean.leader.election.enable":"%b"}}' % allowed.encode()):
                sound.history.changed(f"/config/topics/{TP.topic}")
            return any("who may lead" in line for line in calm_after(sound, CALM_S + 60))

        found = sound.tree.get(STATE)
        dead = found.payload.replace(b'"leader":1', b'"leader":-1').replace(b'"isr":[1,2,3]', b'"isr":[9]')
        assert not complains("true")
        with changed(found, "payload", dead):
            assert not complains("false") and complains("true")
            with changed(sound.cluster, "disks_failed", {1, 2, 3}):
                assert not complains("true"), "their dirs have failed"
            with changed(sound.cluster, "refused", {f"/config/topics/{TP.topic}"}):
                assert not complains("true"), "nobody may have read it"
            with changed(sound.history, "has_lost_notices", True):
                assert not complains("true"), "nobody may have heard of it"

    at_rest(tmp_path, look)
    for default in (True, False):
        history = History(ZnodeTree(), unclean_by_default=default)
        assert history.is_unclean_allowed(TP.topic) is default
        history.unclean_settings[TP.topic] += ["false", None]
        assert not history.is_unclean_allowed(TP.topic), "what is taken back wakes nobody"


def test_calm_sees_an_office_that_nobody_holds(tmp_path: Path) -> None:
    def look(sound: Sound) -> None:
        idle = SimpleNamespace(state=SimpleNamespace(serving=False, moves_that_wait=set()))
        with with_row(sound.cluster.controllers, sound.number, idle):
            assert any("which does not serve" in line for line in calm_after(sound, CALM_S + 60))
            office = sound.tree.get("/controller")
            again = changed(office, "czxid", office.czxid + 1)
            assert calm_after(sound, CALM_S + 60, again.__enter__) == [], "the office was taken anew between two looks"
            again.__exit__(None, None, None)

    at_rest(tmp_path, look)


def test_a_probe_that_is_answered_wrongly_is_told(tmp_path: Path) -> None:
    def look(sound: Sound) -> None:
        ledger = sound.play.ledger
        probes = GroupProbes(sound.cluster, ledger, "probes")
        probes.expect("a thing", ErrorCode.NOT_COORDINATOR, NO_COORDINATOR)
        assert not ledger.broken
        probes.expect("a thing", ErrorCode.NONE, NO_COORDINATOR)
        assert ledger.broken == [
            "a wrong answer to a thing: NONE, allowed are COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, "
            "NOT_COORDINATOR, REQUEST_TIMED_OUT"
        ]

    at_rest(tmp_path, look)


def test_who_is_offline_is_said_of_each_partition_by_itself(tmp_path: Path) -> None:
    def look(sound: Sound) -> None:
        order = to_lead(sound, max(sound.history.broker_epochs[1])).partition_states[0]
        for failed, offline, complains in (
            ({TP}, (BrokerId(2),), False),
            ({TP}, (), True),
            ({TopicPartition("t", 9)}, (BrokerId(2),), True),
            ({TopicPartition("t", 9)}, (), False),
        ):
            entry = UpdateMetadataEntry(TP, order.state, order.assignment.replicas, offline)
            about = head(sound, max(sound.history.broker_epochs[1]))
            requests = Requests(sound.cluster, sound.history)
            with with_row(sound.active.offline_dirs, BrokerId(2), failed):
                requests.check(
                    sound.number, [UpdateMetadataRequest(**about, partition_states=[entry], live_brokers=())]
                )
            assert any("for offline" in line for line in requests.broken) is complains, requests.broken

    at_rest(tmp_path, look)


def test_nobody_knows_a_partition_that_nobody_could_lead(tmp_path: Path) -> None:
    def look(sound: Sound) -> None:
        tree = sound.tree
        for path, replicas, complains in (("dead", b"[9]", False), ("alive", b"[1]", True)):
            tree.write(Create(f"/brokers/topics/{path}", b'{"partitions":{"0":%b}}' % replicas), session=1, now_ms=0)
            found = list(brokers.metadata_is_zookeepers(sound.cluster, sound.history))
            assert any("too few" in line for line in found) is complains, found

    at_rest(tmp_path, look)
