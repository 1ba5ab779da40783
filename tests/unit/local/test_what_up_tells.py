"""What `kwob up` tells while it runs, of a ZooKeeper that ends and does not come back at once."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from controller.local import cluster, up
from controller.local.cluster_file import ClusterError
from controller.local.flags import plain_console
from controller.local.plan import plan_cluster

ENDED = "ZooKeeper ended; starting it again (until then nothing can change in the cluster)"
AGAIN = "ZooKeeper runs again"

#: what each attempt to start it meets, `end` for one that runs and ends then, `up` for one that stays -> the lines
TALES: list[tuple[Sequence[str], list[str]]] = [
    (["up"], [ENDED, AGAIN]),
    (["full", "full", "full", "up"], [ENDED, "ZooKeeper does not start: full", AGAIN]),
    (
        ["full", "full", "taken", "taken", "up"],
        [ENDED, "ZooKeeper does not start: full", "ZooKeeper does not start: taken", AGAIN],
    ),
    (
        ["full", "end", "full", "full", "up"],
        [ENDED, "ZooKeeper does not start: full", AGAIN, ENDED, "ZooKeeper does not start: full", AGAIN],
    ),
]


class Met(cluster.Cluster):
    """Its ZooKeeper meets these when it is started."""

    meets: Sequence[str] = ()

    @property
    def is_zookeeper_up(self) -> bool:
        return list(self.meets) == []

    async def restart_zookeeper(self) -> None:
        what, self.meets = self.meets[0], self.meets[1:]
        if what not in ("up", "end"):
            raise ClusterError(what)


@pytest.mark.parametrize(("meets", "lines"), TALES, ids=[" ".join(meets) for meets, _ in TALES])
def test_what_keeps_zookeeper_down_is_told_once(
    meets: Sequence[str], lines: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ports: dict[str, Any] = {"ports": [1], "zookeeper_port": 4}
    met, out = Met(plan_cluster(data=tmp_path, brokers=1, controllers=1, racks=[], **ports)), io.StringIO()
    met.meets = meets

    async def next_look(seconds: float) -> None:
        if met.is_zookeeper_up:
            raise asyncio.CancelledError

    monkeypatch.setattr(asyncio, "sleep", next_look)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(up.tell_ends(met, plain_console(file=out)))
    assert out.getvalue().splitlines() == lines
