"""All that was ever written to ZooKeeper in a world, as far as oracles ask for it.

Kept by version, so that what a request announces can be compared with what was there, whenever that was.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from controller.wire.zk_operations import Create, Delete, Multi, SetData, WatchEvent, WatchKind, ZkOp, ZkResult
from controller.world.simulated.zk_session import SimulatedSession
from controller.world.simulated.znode_tree import ZnodeTree

STATE_PATH: Final = re.compile(r"/brokers/topics/([^/]+)/partitions/(\d+)/state")
TOPIC_PATH: Final = re.compile(r"/brokers/topics/([^/]+)")

Partition = tuple[str, int]
#: A setting that was read so long ago at most may still be acted upon.
CONSENT_LASTS_S: Final = 20.0


@dataclass(frozen=True, slots=True)
class StateWritten:
    """One content of a state znode. `incarnation` is the czxid of the topic's znode, `version` the state's."""

    incarnation: int
    version: int
    leader: int
    leader_epoch: int
    controller_epoch: int
    isr: tuple[int, ...]


class History:
    """Observes the server: hang `commit` on `on_commit`, `operation` on `on_operation`."""

    def __init__(
        self, tree: ZnodeTree, now_s: Callable[[], float] = lambda: 0.0, *, unclean_by_default: bool = False
    ) -> None:
        """`unclean_by_default`: what the brokers' own setting says of topics without one."""
        self._tree, self._now_s, self._unclean_by_default = tree, now_s, unclean_by_default
        #: Every content that a partition's state had, oldest first, over all topics of that name.
        self.states: defaultdict[Partition, list[StateWritten]] = defaultdict(list)
        #: Partitions whose leader once came from outside the ISR: what was acknowledged may be gone.
        self.unclean: set[Partition] = set()
        #: The leader epoch of the last of these elections.
        self.unclean_epochs: dict[Partition, int] = {}
        #: Told of each of these elections.
        self.on_unclean: Callable[[Partition], object] = lambda partition: None
        #: Those of `unclean` of which a replica may have lost records, or have others: none is held to what it had.
        self.lost: set[Partition] = set()
        #: Partitions whose state somebody else damaged for a while: no promise holds for those, either.
        self.damaged: set[Partition] = set()
        #: partition -> leader epochs whose leader may have lost records and gone on in the same epoch.
        self.epochs_of_losers: defaultdict[Partition, set[int]] = defaultdict(set)
        #: Partitions of which a log of a former topic of that name has been seen to go on.
        self.mixed: set[Partition] = set()
        #: (partition, member of its ISR) that its leader did not count: it may lack what is committed, and may lead.
        self.not_counted: set[tuple[Partition, int]] = set()
        #: Those of `unclean` that no setting allowed, with what was written.
        self.against_consent: list[str] = []
        #: When a partition's state, or the replicas of a topic, were last written.
        self.last_written_s = 0.0
        #: When a leader last wrote an ISR.
        self.last_isr_s = 0.0
        #: topic -> (since when, whether unclean elections are allowed), oldest first
        self._consents: defaultdict[str, list[tuple[float, bool]]] = defaultdict(list)
        #: topic -> what its own setting of unclean elections has said since it had one, oldest first
        self.unclean_settings: defaultdict[str, list[str | None]] = defaultdict(list)
        #: Whether notices of settings were taken away before all had read them.
        self.has_lost_notices = False
        #: When an unclean election was last asked for by name: that needs no setting.
        self.unclean_asked_s = float("-inf")
        #: controller epoch -> machine that wrote it
        self.epoch_winners: dict[int, str] = {}
        self.controller_epoch = 0
        #: Topics that were marked for deletion, by the czxid of their znode.
        self.marked: set[tuple[str, int]] = set()
        #: broker -> the czxids (broker epochs) that its registration had
        self.broker_epochs: defaultdict[int, set[int]] = defaultdict(set)
        #: Every replica that a partition's assignment ever had, by the topic's czxid.
        self.replicas: defaultdict[tuple[int, str, int], set[int]] = defaultdict(set)
        #: topic -> the names of all settings of its own that it ever had
        self.configured: defaultdict[str, set[str]] = defaultdict(set)
        #: topic -> (czxid, content) as last seen
        self.topics: dict[str, tuple[int, dict[str, Any]]] = {}

    def commit(self, events: list[WatchEvent]) -> None:
        """After each change."""
        for event in events:
            if event.kind in (WatchKind.CREATED, WatchKind.DATA_CHANGED):
                self.changed(event.path)
            elif event.path.startswith("/config/topics/"):
                self._consent(event.path, {})
            elif event.path == "/config/changes" and event.kind is WatchKind.DELETED:
                self.has_lost_notices = True

    def changed(self, path: str) -> None:
        """Looks at a znode that was created or written."""
        znode = self._tree.get(path)
        if znode is None:
            return
        if match := STATE_PATH.fullmatch(path):
            self._state(match[1], int(match[2]), znode.version, znode.payload)
        elif match := TOPIC_PATH.fullmatch(path):
            content = parsed(znode.payload)
            if content is not None:
                self.topics[match[1]] = (znode.czxid, content)
                self.last_written_s = self._now_s()
                for number, replicas in content["partitions"].items():
                    self.replicas[znode.czxid, match[1], int(number)] |= set(replicas)
        elif path.startswith("/config/topics/"):
            config = (parsed(znode.payload) or {}).get("config") or {}
            self.configured[path.rpartition("/")[2]] |= set(config)
            self._consent(path, config)
        elif path.startswith("/brokers/ids/"):
            self.broker_epochs[int(path.rpartition("/")[2])].add(znode.czxid)
        elif path.startswith("/admin/delete_topics/"):
            topic = path.rpartition("/")[2]
            if (owner := self._tree.get(f"/brokers/topics/{topic}")) is not None:
                self.marked.add((topic, owner.czxid))

    def _state(self, topic: str, partition: int, version: int, payload: bytes | None) -> None:
        content, owner = parsed(payload), self._tree.get(f"/brokers/topics/{topic}")
        if content is None or owner is None:
            return
        written = StateWritten(
            owner.czxid,
            version,
            content["leader"],
            content["leader_epoch"],
            content["controller_epoch"],
            tuple(content["isr"]),
        )
        rows = self.states[topic, partition]
        before = rows[-1] if rows and rows[-1].incarnation == owner.czxid else None
        if before is not None and written.leader not in (-1, *before.isr):
            self._unclean_election((topic, partition), written)
            if not self.allows_unclean(topic):
                self.against_consent.append(f"{topic}-{partition} was led by {before}, now by {written}")
        if ((topic, partition), written.leader) in self.not_counted:
            self._unclean_election((topic, partition), written)
        rows.append(written)
        self.last_written_s = self._now_s()

    def _unclean_election(self, partition: Partition, written: StateWritten) -> None:
        self.unclean.add(partition)
        self.unclean_epochs[partition] = written.leader_epoch
        self.on_unclean(partition)

    def _consent(self, path: str, config: Mapping[str, str]) -> None:
        text = config.get("unclean.leader.election.enable")
        settings = self.unclean_settings[path.rpartition("/")[2]]
        if text is not None or settings:
            settings.append(text)
        allowed = self._unclean_by_default if text is None else text == "true"
        self._consents[path.rpartition("/")[2]].append((self._now_s(), allowed))

    def state_was_damaged(self, partition: Partition) -> None:
        """Somebody is about to damage its state, or has damaged the log of a replica."""
        self.damaged.add(partition)
        self.records_may_be_lost({partition})
        self.epochs_of_losers[partition] |= {written.leader_epoch for written in self.states[partition][-1:]}

    def records_may_be_lost(self, partitions: Iterable[Partition]) -> None:
        """Some replica of these may lose records, or get others, and nobody hears of it."""
        found = set(partitions)
        self.unclean |= found
        self.lost |= found

    def power_lost(self, broker: int) -> None:
        """A broker is about to lose what it has not synced."""
        for partition, rows in self.states.items():
            if rows and rows[-1].leader == broker:
                self.epochs_of_losers[partition].add(rows[-1].leader_epoch)

    def unclean_was_asked(self) -> None:
        """Somebody is about to ask for an unclean election by name."""
        self.unclean_asked_s = self._now_s()

    def was_unclean_asked(self) -> bool:
        """Whether somebody has asked for an unclean election by name, of late."""
        return self._now_s() - self.unclean_asked_s < CONSENT_LASTS_S

    def allows_unclean(self, topic: str) -> bool:
        """Whether it is allowed, or was while the controller may have read the setting."""
        now_s = self._now_s()
        if self.was_unclean_asked():
            return True
        allowed = self._unclean_by_default
        for since_s, is_allowed in self._consents[topic]:
            if allowed and since_s >= now_s - CONSENT_LASTS_S:
                return True  # until then
            allowed = is_allowed
        return allowed

    def is_unclean_allowed(self, topic: str) -> bool:
        """Whether it is allowed now, and whoever is in office knows. Not where a topic's own setting has forbidden it
        and is gone: that wakes no partition, as in Kafka (`TopicConfigHandler.processConfigChanges`)."""
        if (config := self.unclean_settings[topic])[-1:] == ["true"]:
            return not self.has_lost_notices
        return self._unclean_by_default and not config

    def operation(self, session: SimulatedSession, op: ZkOp, result: ZkResult) -> None:
        """After each operation."""
        if not result.ok or not isinstance(op, Multi | SetData | Create | Delete):
            return
        for part in op.ops if isinstance(op, Multi) else (op,):
            if isinstance(part, SetData) and part.path == "/controller_epoch":
                self.controller_epoch = int(part.data or b"0")
                self.epoch_winners[self.controller_epoch] = session.machine
            elif session.machine.startswith("broker-") and STATE_PATH.fullmatch(part.path):
                self.last_isr_s = self._now_s()

    def announced(self, topic: str, partition: int, key: tuple[int, int, int, tuple[int, ...]]) -> bool:
        """Whether (version, leader, leader epoch, ISR) was ever a content of the partition's state."""
        return any((w.version, w.leader, w.leader_epoch, w.isr) == key for w in reversed(self.states[topic, partition]))


def parsed(payload: bytes | None) -> dict[str, Any] | None:
    """The JSON object of a znode; None for what is none."""
    try:
        content = json.loads(payload or b"")
    except ValueError:
        return None
    return content if isinstance(content, dict) else None
