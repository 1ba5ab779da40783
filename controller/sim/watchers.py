"""All oracles of a world, and when each of them looks: at each commit, every quarter of a second, after each step, at
rest. Those that remember are fed by hooks of the cluster, of ZooKeeper and of the ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

from broker_sim.groups.group import Group
from broker_sim.groups.values import GroupSettings
from controller.rules.hashing import group_partition
from controller.sim.cluster import Cluster
from controller.sim.history import STATE_PATH, History
from controller.sim.load.ledger import Ledger
from controller.sim.oracles import brokers, disks, figures, groups, logs, settled, zookeeper
from controller.sim.oracles.calm import Calm
from controller.sim.oracles.channels import Channels
from controller.sim.oracles.decisions import Decisions
from controller.sim.oracles.dirs import Dirs
from controller.sim.oracles.group_log import GroupsInTheLog
from controller.sim.oracles.group_rules import WatchedGroup
from controller.sim.oracles.inside import Inside
from controller.sim.oracles.quota_rates import QuotaRates
from controller.sim.oracles.quotas import Quotas
from controller.sim.oracles.replication import Replication
from controller.sim.oracles.requests import Requests
from controller.sim.oracles.restarts import Restarts
from controller.sim.oracles.tasks import Tasks
from controller.sim.oracles.traced import Traced, WatchedTrace
from controller.sim.oracles.transitions import Transitions
from controller.sim.oracles.twin import Twins
from controller.wire.types import BrokerId
from controller.wire.zk_operations import WatchEvent

Oracle = Callable[[Cluster, History], Iterator[str]]

#: Looked at every so often, faults or not.
ALWAYS: Final[tuple[Oracle, ...]] = (
    brokers.leader_is_zookeepers,
    brokers.offsets_are_in_order,
    brokers.leaders_know_their_epoch,
    brokers.isr_members_hold_what_is_committed,
    brokers.leaders_isr_was_written,
    logs.recovery_points_are_synced,
    disks.moving_logs_have_a_replica,
    disks.moving_logs_agree,
    zookeeper.one_controller_serves_an_epoch,
    zookeeper.leaders_come_from_the_isr,
    figures.gauges_equal_a_recount,
    groups.offsets_count_once_they_are_committed,
)
#: Looked at whenever a partition's state has been written.
AT_COMMITS: Final[tuple[Oracle, ...]] = (brokers.isr_members_hold_what_is_committed,)
#: Looked at after each step, since they read logs.
AFTER_STEPS: Final[tuple[Oracle, ...]] = (
    *(logs.logs_agree_below_watermarks, logs.epochs_equal_the_log, logs.logs_are_whole),
    *(disks.checkpoints_claim_no_more_than_there_is, disks.epoch_files_are_written),
)
#: Looked at when all is healed and at rest.
AT_REST: Final[tuple[Oracle, ...]] = (
    *ALWAYS,
    brokers.metadata_is_zookeepers,
    brokers.replicas_are_the_assigned_ones,
    zookeeper.the_office_watches,
    zookeeper.who_is_not_in_office_is_silent,
    zookeeper.admin_work_is_done,
    zookeeper.isrs_are_the_replicas,
    zookeeper.leaders_are_preferred,
    figures.gauges_equal_zookeeper,
    figures.believed_is_zookeepers,
    figures.nobody_faulted,
    partial(logs.logs_agree_below_watermarks, tail=None),
    partial(logs.epochs_equal_the_log, tail=None),
    partial(logs.logs_are_whole, tail=None),
    disks.logs_start_with_their_leader,
    disks.checkpoints_claim_no_more_than_there_is,
    groups.nobody_waits_who_was_answered,
    *settled.SETTLED,
)


class Watchers:
    """The oracles of one world; `Cluster`, `History` and `Ledger` are its own."""

    def __init__(self, cluster: Cluster, history: History, ledger: Ledger) -> None:
        self._cluster, self._history, self._ledger = cluster, history, ledger
        self.writes, self.decisions = zookeeper.Writes(cluster, history), Decisions(cluster, history)
        self.inside = Inside(cluster, history)
        self.transitions = Transitions(cluster.controllers, cluster.refused)
        self.requests, self.calm = Requests(cluster, history), Calm(cluster, history)
        self.twins = Twins(cluster, self.calm)
        self.traced, self.quotas, self.rates = Traced(cluster, history), Quotas(cluster), QuotaRates(cluster)
        self.replication = Replication(cluster, history, ledger.on_ack)
        self.restarts, self.dirs, self.tasks = Restarts(cluster), Dirs(cluster), Tasks()
        self.channels, self.left_over = Channels(cluster), settled.LeftOver(cluster, history)
        self.group_rules, self.group_log = list[str](), GroupsInTheLog(cluster, history)
        #: The traces of all lives of brokers.
        self.traces: list[WatchedTrace] = []
        self._at_commits: list[str] = []
        self._listen()

    def _listen(self) -> None:
        cluster, zk = self._cluster, self._cluster.world.zookeeper
        rows = (self.traced.row, self.quotas.row, self.rates.row, self.replication.row, self.restarts.row)
        cluster.make_trace = partial(self._trace, seen=rows, opened=self.traces)
        cluster.make_group = self._group
        self.group_log.on_loss = self._reads_are_lost
        cluster.on_event += [self.traced.event, self.transitions.event, self.inside.event, self.group_log.event]
        cluster.on_event += [self.restarts.event, self.dirs.event, self.tasks.event, self.channels.event]
        cluster.on_event.append(self.calm.event)
        cluster.on_controller += [self.requests.watch, self.channels.watch]
        self._ledger.on_ack.append(self.traced.acknowledged)
        self._ledger.on_error.append(self.traced.answered)
        zk.on_commit.append(lambda events: self._history.commit(list(events)))
        zk.on_commit.append(self._at_commit)
        judges = (self._history, self.writes, self.decisions, self.inside, self.restarts, self.left_over)
        zk.on_operation += [judge.operation for judge in judges]

    def _trace(self, broker_id: BrokerId, *where: Any, **more: Any) -> WatchedTrace:
        """A broker that makes its trace loads its logs next."""
        self.restarts.reads(broker_id)
        return WatchedTrace(broker_id, *where, **more)

    def _group(self, number: int, group_id: str, settings: GroupSettings) -> WatchedGroup:
        group = WatchedGroup(f"broker {number}", self.group_rules, group_id, settings)
        group.on_death = partial(self._group_dies, number)
        return group

    def _group_dies(self, number: int, group: Group) -> None:
        if self.group_log.dies(number, group):
            self._ledger.group_deleted(group.group_id)

    def _reads_are_lost(self, partition: int) -> None:
        partitions = int(self._cluster.settings["offsets.topic.num.partitions"])
        self._ledger.reads_are_lost(lambda group: group_partition(group, partitions) == partition)

    def _at_commit(self, events: Sequence[WatchEvent]) -> None:
        """What must hold in the very moment in which a state is written."""
        if any(STATE_PATH.fullmatch(event.path) for event in events):
            self._at_commits += self._found(AT_COMMITS)

    def now_and_then(self) -> list[str]:
        """What is broken at any time."""
        with brokers.one_moment():
            return self._now()

    def _now(self) -> list[str]:
        self.replication.look()
        self.group_log.look()
        self.dirs.look()
        broken = self.so_far((*ALWAYS, self.group_log.forgets_what_is_deleted)) or [
            *self.requests.given_up(),
            *self.channels.problems(),
            *self.calm.problems(),
            *self.twins.problems(),
        ]
        for broker_id, tp, replica in brokers.replicas(self._cluster):
            self.traced.looked_at(broker_id, self._cluster.brokers[broker_id], tp, replica.hw)
        return broken

    def after_step(self) -> list[str]:
        """What is broken after a step."""
        return self.so_far(AFTER_STEPS)

    def so_far(self, oracles: Sequence[Oracle] = ()) -> list[str]:
        """What those that remember have seen, and what these see now."""
        cluster = self._cluster
        broken = [*cluster.invariants.broken, *cluster.contradictions, *self._ledger.broken, *self._at_commits]
        broken += self.group_rules
        for one in (self.writes, self.requests, self.traced, self.decisions, self.transitions):
            broken += one.broken
        for other in (self.inside, self.quotas, self.rates, self.replication, self.restarts, self.group_log):
            broken += other.broken
        broken += [*self.dirs.broken, *self.tasks.broken, *self.channels.broken]
        return [*broken, *self._found(oracles)]

    def at_rest(self, others: Sequence[Oracle] = ()) -> str:
        """The first that does not hold yet, these among them; who reads whole logs is asked last."""
        replication = self.replication
        asked = (*AT_REST, replication.nobody_is_owed_a_notice, replication.remembered.producers_equal_a_recount)
        asked += (self.left_over.problems, *self.group_log.at_rest, *others)
        with brokers.one_moment():
            found = next(("; ".join(found) for oracle in asked if (found := self._found((oracle,)))), "")
        return found or "; ".join(self.inside.at_rest())

    def _found(self, oracles: Sequence[Oracle]) -> list[str]:
        with brokers.one_moment():
            return [
                f"{getattr(oracle, '__name__', None) or oracle.func.__name__}: {wrong}"  # type: ignore[attr-defined]
                for oracle in oracles
                for wrong in oracle(self._cluster, self._history)
            ]
