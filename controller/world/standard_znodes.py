"""What every node creates where it is missing when it starts: the standard znodes and the id of the cluster.

Source: spec controller.md §1.2; Kafka 3.9 `KafkaZkClient.createTopLevelPaths`, `createOrGetClusterId`.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Final, Protocol

from controller.wire.zk_operations import Create, GetData, ZkCode, ZkRefused
from controller.wire.znodes import PERSISTENT_PATHS, ClusterIdZNode, ControllerEpochZNode, ZnodeError
from controller.world.ports import ZkOperations

#: Of a cluster's id, before it is text.
_ID_BYTES: Final = 16


class RandomBytes(Protocol):
    """Chance, as far as it is needed here: a `random.Random`."""

    def randbytes(self, n: int, /) -> bytes:
        """So many random bytes."""
        ...


class ClusterIdRemoved(ZnodeError):
    """The cluster has had a controller, and its id is gone."""


async def prepare_cluster(zk: ZkOperations, chance: RandomBytes, *, own: str | None = None) -> str:
    """Creates what is missing and returns the cluster's id. `own`: the id that this node's disks hold, if they do.

    A cluster that has had a controller has an id: where it was removed, a node that holds it restores it, and no other
    draws one, since no broker of that cluster could start with it. Raises: ClusterIdRemoved, ZkRefused, ZnodeError,
    ZkSessionExpired.
    """
    await _ensure_paths(zk, [*PERSISTENT_PATHS, "/cluster"])
    drawn = base64.urlsafe_b64encode(chance.randbytes(_ID_BYTES)).decode().rstrip("=")
    found, epoch = await zk.perform([GetData(ClusterIdZNode.path), GetData(ControllerEpochZNode.path)])
    if found.code is ZkCode.NO_NODE and epoch.ok and own is None:
        raise ClusterIdRemoved(
            f"{ClusterIdZNode.path} was removed: start a broker whose meta.properties holds the id, or restore it"
        )
    if found.code is ZkCode.NO_NODE:
        await zk.perform([Create(ClusterIdZNode.path, ClusterIdZNode.encode(own or drawn))])
        (found,) = await zk.perform([GetData(ClusterIdZNode.path)])  # another node may have been first
    if not found.ok:
        raise ZkRefused(ClusterIdZNode.path, found.code)
    return ClusterIdZNode.decode(found.data)


async def _ensure_paths(zk: ZkOperations, paths: Sequence[str]) -> None:
    """Creates these persistent znodes and their parents where absent. Raises: ZkRefused."""
    needed = dict.fromkeys(prefix for path in paths for prefix in _with_parents(path))
    results = await zk.perform([Create(path) for path in needed])
    for path, result in zip(needed, results, strict=True):
        if result.code not in (ZkCode.OK, ZkCode.NODE_EXISTS):
            raise ZkRefused(path, result.code)


def _with_parents(path: str) -> list[str]:
    """`/a/b/c` as `/a`, `/a/b`, `/a/b/c`."""
    parts = path.strip("/").split("/")
    return ["/" + "/".join(parts[:depth]) for depth in range(1, len(parts) + 1)]
