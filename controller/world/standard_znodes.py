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


async def prepare_cluster(zk: ZkOperations, chance: RandomBytes) -> str:
    """Creates what is missing and returns the cluster's id.

    A cluster that has had a controller has an id: where it was removed no other is drawn, since no broker of that
    cluster could start with it. Raises: ZkRefused, ZnodeError, ZkSessionExpired.
    """
    await _ensure_paths(zk, [*PERSISTENT_PATHS, "/cluster"])
    proposal = base64.urlsafe_b64encode(chance.randbytes(_ID_BYTES)).decode().rstrip("=")
    found, epoch = await zk.perform([GetData(ClusterIdZNode.path), GetData(ControllerEpochZNode.path)])
    if found.code is ZkCode.NO_NODE and epoch.ok:
        raise ZnodeError(f"{ClusterIdZNode.path} was removed: restore it (meta.properties of each broker holds the id)")
    if found.code is ZkCode.NO_NODE:
        await zk.perform([Create(ClusterIdZNode.path, ClusterIdZNode.encode(proposal))])
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
