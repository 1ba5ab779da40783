"""What must hold when nothing has changed for a while, though some brokers are down: liveness in named virtual times.

Calm is: no cut, no slow link, no refusal, no throttle, nobody paused, the same brokers registered, the same
controller in office, no admin work left. Then every partition with a live member in its ISR has a live leader, as has
one with any live replica where unclean elections are allowed; no dead broker is in an ISR beside a live one, nor named
as a leader, unless ZooKeeper refused to have it taken away; and every live broker knows all of it.
Source: Kafka's controller; spec controller.md §4, §5, §9; broker.md §8.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from controller.sim.cluster import Cluster
from controller.sim.history import History
from controller.sim.oracles import brokers
from controller.sim.oracles.beliefs_of_moves import BeliefsOfMoves
from controller.sim.oracles.zookeeper import admin_work_is_done
from controller.wire import log_events as ev
from controller.wire.topic_znode import TopicsZNode
from controller.wire.types import TopicPartition
from controller.wire.znodes import ControllerZNode, TopicPartitionStateZNode

#: Virtual seconds of calm after which all of it holds.
CALM_S: Final = 9.0
#: Within which all brokers are told of a state: the balance and leaders write some in calm, too.
TOLD_S: Final = 1.0
#: Within which a leader tells the controller of the ISRs that it knows to be written, where it writes no other
#: meanwhile: it collects for 5 s and looks every 2.5 s. Source: `ZkIsrManager`; broker.md §9.2.
NOTICED_S: Final = 8.5


class Calm:
    """Asked now and then; remembers since when it is calm. Hang `event` on what is logged."""

    def __init__(self, cluster: Cluster, history: History) -> None:
        self._cluster, self._history = cluster, history
        self._seen: object = None
        self._since_s = 0.0
        self._beliefs = BeliefsOfMoves(cluster)
        #: (topic, partition, dead replica that a refusal kept in the ISR) -> the controller's epoch, and that broker's
        self._kept: dict[tuple[str, int, int], tuple[int, int]] = {}
        #: (topic, controller's epoch) of topics that could not be read in it, and were learnt late therefore.
        self._learnt_late: set[tuple[str, int]] = set()
        #: When a leader last heard that an ISR of its own is written: it tells the controller of it a while later.
        self._heard_s = 0.0
        #: Brokers that have started again while their last session is not over: they look as if they were there.
        self._not_yet_back: set[int] = set()
        #: how often it was calm enough to look
        self.looked = 0

    def event(self, event: Mapping[str, Any]) -> None:
        """One log event of any program."""
        if event.get("event") in (ev.ISR_EXPANDED, ev.ISR_SHRUNK):
            self._heard_s = self._cluster.world.loop.time()
        if event.get("event") == ev.BROKER_REGISTRATION_WAITED:
            self._not_yet_back.add(event["broker_id"])
        if event.get("event") == ev.BROKER_REGISTERED:
            self._not_yet_back.discard(event["broker_id"])
        if event.get("event") == ev.ZK_DATA_REFUSED and event["path"].startswith(f"{TopicsZNode.path}/"):
            self._learnt_late.add((event["path"].split("/")[3], event["controller_epoch"]))
        if event.get("event") != ev.PARTITION_ISR_KEPT:
            return
        topic, partition, replica = event["topic"], event["partition"], event["replica"]
        if TopicPartitionStateZNode.path(TopicPartition(topic, partition)) in self._cluster.refused:
            self._kept[topic, partition, replica] = event["controller_epoch"], self._life(replica)

    def problems(self) -> Iterator[str]:
        """What does not hold although it has been calm for long enough. Nothing while it is not."""
        yield from self._beliefs.problems()
        cluster, now_s = self._cluster, self._cluster.world.loop.time()
        if (seen := self.what_counts()) is None or seen != self._seen:
            self._seen, self._since_s = seen, now_s
            return
        wait_s = CALM_S + 2 * self._lag_s
        if now_s - self._since_s < wait_s or now_s - self._history.last_written_s < TOLD_S:
            return
        self.looked += 1
        left = list(admin_work_is_done(cluster, self._history))
        if left:
            return
        is_noticed = self.isrs_were_noticed() and not self._moves_wait()
        for wrong in (*self._office(), *self._leaders(), *(self._metadata() if is_noticed else ())):
            yield f"calm for {now_s - self._since_s:.0f} s: {wrong}"

    def isrs_were_noticed(self) -> bool:
        """Whether leaders have had the time to tell the controller of the ISRs that they wrote."""
        last_s = max(self._history.last_isr_s, self._heard_s)
        return self._cluster.world.loop.time() - last_s >= NOTICED_S

    def _moves_wait(self) -> bool:
        """Whether moves are tried again soon, since ZooKeeper refused a state: replicas that are written are told then.
        docs/deviations.md (move that cannot end)."""
        controller = self._cluster.controllers.get(self._cluster.active_controller() or 0)
        return controller is not None and bool(controller.state.moves_that_wait)

    @property
    def _lag_s(self) -> float:
        return int(self._cluster.settings["replica.lag.time.max.ms"]) / 1000

    def what_counts(self) -> object:
        """What must stay as it is; None while anything is disturbed."""
        cluster = self._cluster
        world, active = cluster.world, cluster.active_controller()
        disks = any(disk.failing for disk in cluster.disks.values())
        if cluster.paused or cluster.stopping or disks or world.is_disturbed or active not in cluster.controllers:
            return None
        if cluster.damaged or self._is_throttled():
            return None
        running = cluster.registered()
        if cluster.brokers.keys() != running or self._not_yet_back & running:
            return None
        epochs = tuple(sorted((b, max(self._history.broker_epochs[b])) for b in running))
        topics = tuple(sorted((topic, czxid) for topic, (czxid, _) in self._history.topics.items()))
        sessions = tuple(sorted(world.zookeeper.sessions))
        office = world.zookeeper.tree.get(ControllerZNode.path)
        since = office and (office.czxid, office.version)
        return epochs, topics, sessions, active, since, self._history.controller_epoch, world.suspensions

    def _is_throttled(self) -> bool:
        """A follower that is held back joins an ISR whenever it is there, and its leader takes seconds to tell."""
        tables = [broker.replicas.table for broker in self._cluster.brokers.values() if broker.replicas is not None]
        return any(
            quota.bound is not None and any(quota.is_throttled(tp) for tp in table.partitions)
            for table in tables
            for quota in (table.leader_quota, table.follower_quota)
        )

    def _office(self) -> Iterator[str]:
        active = self._cluster.active_controller()
        controller = self._cluster.controllers.get(active) if active is not None else None
        if controller is not None and not controller.state.serving:
            yield f"/controller names {active}, which does not serve"

    def _leaders(self) -> Iterator[str]:
        cluster = self._cluster
        registered = cluster.registered()
        for topic, partition in cluster.partitions():
            state = cluster.state(topic, partition)
            if state is None:
                if registered & set(cluster.assignment(topic, partition)):
                    yield f"{topic}-{partition} has no state"
                continue
            live = registered & set(state["isr"])
            if live and state["leader"] not in registered:
                yield f"{topic}-{partition} is led by {state['leader']}, alive are {sorted(live)} of its ISR"
            if not live and self._history.is_unclean_allowed(topic) and (able := self._able(topic, partition)):
                yield f"{topic}-{partition} is led by nobody, alive are {able}, who may lead"
            stays = not live and self.was_kept(topic, partition, state["leader"])
            if state["leader"] not in registered and state["leader"] != -1 and not stays:
                yield f"{topic}-{partition} is led by {state['leader']}, which is dead"
            if live and set(state["isr"]) - registered:
                yield f"{topic}-{partition} has the dead in its ISR {state['isr']}, alive are {sorted(registered)}"

    def was_kept(self, topic: str, partition: int, replica: int, *, may_be_back: bool = False) -> bool:
        """Whether ZooKeeper refused to have this replica taken out of the ISR when it died. Whoever is in office does
        not try that again, as in Kafka (`ZkReplicaStateMachine.removeReplicasFromIsr`): a leader that lives does when
        it finds it late, and where nobody of the ISR lives, a dead leader stays named until somebody comes who may
        lead. The next controller does try it. `may_be_back`: also when it has started anew since.

        So does the ISR of a topic that could not be read when the office was taken: who died before it was learnt
        stays in it (docs/deviations.md, existing state)."""
        epoch, life = self._kept.get((topic, partition, replica), (None, None))
        if (topic, self._history.controller_epoch) in self._learnt_late and replica not in self._cluster.registered():
            return True
        return epoch == self._history.controller_epoch and (may_be_back or life == self._life(replica))

    def _life(self, broker: int) -> int:
        """The epoch of its last registration."""
        return max(self._history.broker_epochs.get(broker, ()), default=-1)

    def _able(self, topic: str, partition: int) -> list[int]:
        """Replicas that live, of brokers whose dirs are good: one of them leads where a setting allows any, unless it
        could not be read."""
        cluster = self._cluster
        if f"/config/topics/{topic}" in cluster.refused:
            return []
        alive = sorted(cluster.registered() & set(cluster.assignment(topic, partition)))
        return [broker for broker in alive if not cluster.has_had_a_failed_dir(broker)]

    def _metadata(self) -> Iterator[str]:
        cluster = self._cluster
        offline = {tp for tp in cluster.partitions() if not set(cluster.assignment(*tp)) <= cluster.registered()}
        for wrong in brokers.metadata_is_zookeepers(cluster, self._history):
            if " for offline" not in wrong or not offline:
                yield wrong
