"""What must hold of partition states and the controller epoch after every single change, whatever fails.

Source: spec controller.md §1.3, §5.3, §6.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from controller.wire.zk_operations import WatchEvent, WatchKind
from controller.world.simulated.znode_tree import ZnodeTree

NO_LEADER = -1
_STATE = re.compile(r"/brokers/topics/([^/]+)/partitions/(\d+)/state")
_TOPIC = re.compile(r"/brokers/topics/([^/]+)")


class Invariants:
    """Called after each commit. Collects what is broken instead of raising inside the server."""

    def __init__(self, tree: ZnodeTree) -> None:
        self._tree = tree
        self._leaders: dict[tuple[int, str, int], dict[int, int]] = {}  # (czxid of topic, topic, partition) -> by epoch
        #: as above -> all that were ever replicas: a leader that has not heard of a cancelled move may take one in
        self._replicas: dict[tuple[int, str, int], set[int]] = {}
        self._controller_epoch = -1
        #: Told of a partition that a leader of a former topic leads now: nothing is promised of it any more.
        self.on_former_leader: Callable[[tuple[str, int]], object] = lambda partition: None
        self.broken: list[str] = []
        self.checked = 0

    def check(self, events: Sequence[WatchEvent]) -> None:
        """Hang it on the server's `on_commit`."""
        for event in events:
            if event.kind in (WatchKind.CREATED, WatchKind.DATA_CHANGED):
                if match := _TOPIC.fullmatch(event.path):
                    self._note_replicas(event.path, match[1])
                elif match := _STATE.fullmatch(event.path):
                    self._check_state(event.path, match[1], int(match[2]))
                elif event.path == "/controller_epoch":
                    self._check_controller_epoch()

    def _note_replicas(self, path: str, topic: str) -> None:
        if (znode := self._tree.get(path)) is not None:
            for number, replicas in json.loads(znode.payload or b'{"partitions":{}}')["partitions"].items():
                self._replicas.setdefault((znode.czxid, topic, int(number)), set()).update(replicas)

    def _check_controller_epoch(self) -> None:
        znode = self._tree.get("/controller_epoch")
        epoch = int(znode.payload or b"0") if znode is not None else 0
        self.expect(epoch > self._controller_epoch, f"controller epoch {epoch} after {self._controller_epoch}")
        self._controller_epoch = max(epoch, self._controller_epoch)

    def _check_state(self, path: str, topic: str, partition: int) -> None:
        znode, parent = self._tree.get(path), self._tree.get(f"/brokers/topics/{topic}")
        if znode is None or parent is None:
            return  # changed again, or deleted, in the same transaction
        self.checked += 1
        state: dict[str, Any] = json.loads(znode.payload or b"{}")
        replicas = json.loads(parent.payload or b"{}")["partitions"].get(str(partition), [])
        leader, epoch, isr = state["leader"], state["leader_epoch"], state["isr"]
        name = f"{topic}-{partition} {state} replicas {replicas}"
        self.expect(bool(isr), f"empty ISR: {name}")
        self.expect(len(set(isr)) == len(isr), f"ISR with doubles: {name}")
        ever = self._replicas.get((parent.czxid, topic, partition), set()) | set(replicas)
        self.expect(set(isr) <= ever, f"ISR beyond the replicas: {name}")
        self.expect(leader == NO_LEADER or leader in isr, f"leader outside the ISR: {name}")
        self.expect(state["controller_epoch"] <= self._controller_epoch, f"controller epoch of the future: {name}")
        leaders = self._leaders.setdefault((parent.czxid, topic, partition), {})
        self.expect(epoch >= max(leaders, default=0), f"leader epoch falls from {max(leaders, default=0)}: {name}")
        if leaders.setdefault(epoch, leader) == leader:
            return
        if self._led_before(parent.czxid, topic, partition).get(epoch) == leader:
            self.on_former_leader((topic, partition))
        else:
            self.expect(False, f"second leader of an epoch, {leaders}: {name}")

    def _led_before(self, czxid: int, topic: str, partition: int) -> dict[int, int]:
        """By epoch, of the topic of this name before this one. Its leader may not have heard that it is gone, and a
        version says nothing of the topic that it is of (docs/deviations.md, "ISR of a former topic")."""
        former = max((key for key in self._leaders if key[1:] == (topic, partition) and key[0] < czxid), default=None)
        return self._leaders[former] if former else {}

    def expect(self, holds: bool, otherwise: str) -> None:
        """Notes what is broken."""
        if not holds:
            self.broken.append(otherwise)
