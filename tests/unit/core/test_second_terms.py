"""Of what a process believed in one term nothing is left in the next: it does what a fresh process would do."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Set
from itertools import product
from random import Random
from typing import Any

import pytest

from controller.core import events
from controller.core.events import UncleanLeaderElectionEnable
from controller.core.view import ClusterView
from controller.wire.types import BrokerId, TopicPartition
from controller.wire.zk_operations import Create, Delete, SetData, ZkCode
from controller.wire.znodes import LogDirEventNotificationZNode, TopicAssignment, TopicPartitionStateZNode
from tests.worlds.data import BROKERS, SCENES, Cluster
from tests.worlds.stage import Stage, move_to

MOVED = TopicPartition("t", 1)
#: The znode of a topic, without a move.
PLAIN = {"version": 3, "partitions": {"0": [1, 2], "1": [2, 3]}, "adding_replicas": {}, "removing_replicas": {}}


def asks_to_leave(cluster: Cluster) -> None:
    """And stays registered."""
    cluster.run(events.ControlledShutdown(BrokerId(2), -1, 3))


def disk_fails(cluster: Cluster) -> None:
    cluster.failed_dirs[3] = {MOVED, TopicPartition("u", 0)}
    data = LogDirEventNotificationZNode.encode(BrokerId(3))
    cluster.others_write(Create(LogDirEventNotificationZNode.sequence_path, data, sequence=True))
    cluster.run()


def disk_is_mended(cluster: Cluster) -> None:
    """No real broker does that while it runs; what it answers is what counts."""
    cluster.failed_dirs.clear()


def dies(cluster: Cluster) -> None:
    if 1 in cluster.broker_sessions:
        cluster.broker_dies(1)
    cluster.run()


def waits_with_a_move(cluster: Cluster) -> None:
    """Its state cannot be written for a while."""
    path = TopicPartitionStateZNode.path(MOVED)
    cluster.tree.refusal = lambda op: ZkCode.NO_AUTH if isinstance(op, SetData) and op.path == path else None
    move_to(cluster, 4, 3, tp=MOVED)
    cluster.tree.refusal = lambda _: None


def waits_with_a_deletion(cluster: Cluster) -> None:
    """A broker deletes nothing: it says nothing."""
    cluster.silent.add(3)
    SCENES["delete"](cluster)


def vanishes(cluster: Cluster) -> None:
    """A topic and its marker, by hand."""
    cluster.others_write(Delete("/admin/delete_topics/u"))
    if cluster.exists("/brokers/topics/u"):
        for below in ("/partitions/0/state", "/partitions/0", "/partitions", ""):
            cluster.others_write(Delete(f"/brokers/topics/u{below}"))
    cluster.acked.pop(TopicPartition("u", 0), None)
    cluster.run()


def gets_an_id(cluster: Cluster) -> None:
    """And what nobody here understands."""
    found = cluster.tree.get("/brokers/topics/t")
    known = json.loads(found.payload or b"{}") if found is not None else {}
    cluster.make("/brokers/topics/t", json.dumps(known | {"topic_id": "jLFmdEvyc0jNaA60SaJ1Mg", "new": 5}).encode())
    cluster.run()


def is_as_it_was(cluster: Cluster) -> None:
    """A topic, as somebody who knows neither moves nor ids writes it; nor is one to be deleted any more."""
    cluster.make("/brokers/topics/t", json.dumps(PLAIN).encode())
    cluster.others_write(Delete("/admin/delete_topics/u"))
    cluster.run()


def nothing(_: Cluster) -> None:
    pass


LASTING = (asks_to_leave, disk_fails, dies, waits_with_a_move, waits_with_a_deletion, vanishes, gets_an_id)
ACTS: dict[str, Callable[[Cluster], None]] = SCENES | {each.__name__: each for each in LASTING}
#: What happens while another controller, or none, is in office.
MEANWHILE = (nothing, dies, disk_is_mended, vanishes, is_as_it_was)


def session_ends(cluster: Stage, *, same_process: bool) -> Callable[[], None]:
    """The office is lost; by what it is won again."""
    if not same_process:
        cluster.new_controller()
        return cluster.start
    cluster.end_session(cluster.session)
    cluster.events.clear()
    cluster.run(events.Expire())
    cluster.session += 100
    return lambda: cluster.run(events.RegisterBrokerAndReelect(cluster.session))


def rival_wins(cluster: Stage, *, same_process: bool) -> Callable[[], None]:
    """As `session_ends`."""
    cluster.rival_wins()
    if not same_process:
        cluster.new_controller()
    cluster.run()

    def goes() -> None:
        cluster.others_write(Delete("/controller"))
        cluster.run(*(() if same_process else (cluster.startup,)))

    return goes


def has_nothing(cluster: Cluster) -> None:
    """Who is out of office counts nothing, waits for nothing, believes nothing, and has no epoch to say."""
    gauges = cluster.state.gauges()
    assert gauges == dict.fromkeys(gauges, 0) | {"ZkMigrationState": 4}
    assert (cluster.state.epoch, cluster.timers, cluster.channels) == (0, [], set())
    names = {name for name, each in vars(ClusterView).items() if isinstance(each, property)} - {"brokerless"}
    believed = {name: value for name in names if isinstance(value := getattr(cluster.state, name), (Mapping, Set))}
    assert len(believed) >= 12 and {name for name, value in believed.items() if value} == set()
    assert all(cluster.state.topic_content(topic) == TopicAssignment() for topic in "tu")


def second_term(ends: Callable[..., Any], before: list[str], meanwhile: Callable[[Cluster], None],
                after: list[str], *, same_process: bool) -> list[str]:  # fmt: skip
    """What it writes, sends, logs, traces and counts: at its beginning, and in the scenes that come after."""
    cluster = Cluster(trace=True)
    for name in before:
        ACTS[name](cluster)
    cluster.run()
    wins = ends(cluster, same_process=same_process)
    has_nothing(cluster)
    meanwhile(cluster)
    for past in (cluster.lines, cluster.logs, cluster.traces):
        past.clear()
    wins()
    assert cluster.state.serving and cluster.state.epoch > 1
    for name in after:
        cluster.lines += [str(cluster.state.gauges()), f"# {name}"]
        ACTS[name](cluster)
        cluster.topic(f"after-{name}", p0=BROKERS, p1=(2,), p2=(3,))
        cluster.run()
        move_to(cluster, 4, 2, tp=MOVED)
    if ends is session_ends:  # else there are those of the first term
        cluster.lines.append(f"{len(cluster.watches)} watches")
    return [*cluster.lines, *map(str, cluster.logs), *map(str, cluster.traces)]


@pytest.mark.parametrize("ends", [session_ends, rival_wins], ids=lambda ends: ends.__name__)
@pytest.mark.parametrize("first", sorted(ACTS))
def test_a_second_term_is_the_first_of_a_fresh_process(first: str, ends: Callable[..., Any]) -> None:
    for meanwhile in MEANWHILE:
        chance = Random(f"{first} {meanwhile.__name__}")
        before, after = [first, *chance.sample(sorted(ACTS), chance.randint(0, 2))], chance.sample(sorted(ACTS), 3)
        again, fresh = (second_term(ends, before, meanwhile, after, same_process=same) for same in (True, False))
        assert again == fresh, f"{before} before, {meanwhile.__name__} meanwhile, {after} after"


@pytest.mark.parametrize("ends", [session_ends, rival_wins], ids=lambda ends: ends.__name__)
def test_the_default_of_unclean_elections_is_what_was_said_last_whoever_was_in_office(ends: Callable[..., Any]) -> None:
    """It is said once: before the first term, or between it and the next one. By it whoever is leaderless at the
    beginning of a term, or later, gets a leader or not."""
    for default, *said in product((False, True), *[(None, False, True)] * 2):
        cluster = Stage(unclean_leader_election_enable=default)
        before, meanwhile = ([] if value is None else [UncleanLeaderElectionEnable(value)] for value in said)
        cluster.broker_starts(1, 2, 3)
        cluster.topic("t", p0=(1, 2), p1=(3, 2))
        cluster.others_write(Create("/controller", b'{"version":2,"brokerid":99}'))
        cluster.run(cluster.startup, *before)
        cluster.others_write(Delete("/controller"))
        cluster.run()
        for partition, leader in enumerate((1, 3)):
            cluster.leader_writes(TopicPartition("t", partition), (leader,))
        wins = ends(cluster, same_process=True)
        cluster.run(*meanwhile)
        cluster.broker_dies(1)
        wins()
        cluster.broker_dies(3)
        cluster.run()
        allowed = next((value for value in reversed(said) if value is not None), default)
        assert [cluster.leader(TopicPartition("t", p))[0] for p in (0, 1)] == [2 if allowed else None] * 2, said
