"""Whether a cluster can carry what its clients write and read before anything happens to it. Pure.

A rehearsal of one that cannot would begin with followers falling behind for a reason that no plan has.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from controller.rehearse.scenario import BrokerLimits
from controller.wire.cluster_file import ClusterShape
from controller.wire.document_errors import Place


@dataclass(slots=True)
class Load:
    """What passes one broker in calm times, bytes per second."""

    link_in: float = 0.0
    link_out: float = 0.0

    @property
    def disk(self) -> float:
        """Written to its disks; what is read comes from memory."""
        return self.link_in


def loads(shape: ClusterShape) -> dict[int, Load]:
    """By broker: what clients write and read, and what followers in sync copy."""
    found: dict[int, Load] = defaultdict(Load)
    for _, partition in shape.partitions():
        leader = partition.leader_id
        if leader is None:
            continue
        followers = [replica for replica in partition.in_sync if replica != leader]
        found[leader].link_in += partition.in_bytes_per_s
        found[leader].link_out += partition.out_bytes_per_s + partition.in_bytes_per_s * len(followers)
        for follower in followers:
            found[follower].link_in += partition.in_bytes_per_s
    return found


def impossible(shape: ClusterShape, limits: BrokerLimits) -> Iterator[tuple[Place, str]]:
    """Each limit that calm times are beyond: its place in the cluster file (a broker that has none of its own: that of
    the broker), and what is wrong."""
    found = loads(shape)
    for number, broker in enumerate(shape.brokers):
        load = found.get(broker.id, Load())
        link, disk = broker.link_bytes_per_s or limits.link, broker.disk_bytes_per_s or limits.disk
        for name, need, way, limit in (
            ("link", load.link_in, "come in", link),
            ("link", load.link_out, "go out", link),
            ("disk", load.disk, "are written", disk),
        ):
            if limit is not None and need > limit:
                yield (
                    ("brokers", number, f"{name}_bytes_per_s"),
                    f"broker {broker.id}: {need / 1e6:,.1f} MB/s {way} by the rates of its partitions, more than its "
                    f"{name} holds, {limit / 1e6:,.1f} MB/s: raise {name}_bytes_per_s (or the scenario's limits), or "
                    "lower in_bytes_per_s and out_bytes_per_s",
                )
