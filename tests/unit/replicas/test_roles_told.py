"""The life of one replica as the log of its broker tells it: all lines, with all that they say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from structlog.testing import capture_logs

from controller.wire.types import TopicPartition
from tests.worlds.replicas import Cluster

TP = TopicPartition("t", 0)
BOTH = (1, 2)


def test_a_replica_leads_follows_waits_and_goes(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        def said(lines: Any) -> list[Any]:
            """Those of broker 1, once each; taken from the lines."""
            own = [{k: v for k, v in line.items() if k not in ("broker_id", "log_level")} for line in lines]
            lines.clear()
            return own

        def of(event: str, leader: int | None, epoch: int, isr: list[int], **keys: Any) -> Any:
            return {"event": event, **which, "leader": leader, "leader_epoch": epoch, "isr": isr, **keys}

        which = {"topic": "t", "partition": 0}
        folder = str(tmp_path / "1-a")
        with capture_logs() as lines:
            cluster.appoint(TP, 1, BOTH, BOTH, to=(1,), is_new=True)
            assert said(lines) == [
                {"event": "log.created", **which, "log_dir": folder}, of("leader.started", 1, 0, [1, 2], offset=0),
            ]  # fmt: skip
            await cluster.produce(TP, 1, [b"a", b"b", b"c"])
            cluster.appoint(TP, 1, (1,), BOTH, to=(1,))
            assert said(lines) == [of("leader.started", 1, 1, [1], offset=3)]
            cluster.appoint(TP, 2, BOTH, BOTH, to=(1,))
            assert said(lines) == [
                of("follower.started", 2, 2, [1, 2], offset=3),
                {"event": "fetcher.added", "leader": 2, "fetcher_id": 0},
            ]
            for leader in (None, 9):
                cluster.appoint(TP, leader, BOTH, (1, 2, 9), to=(1,))
                epoch = 3 if leader is None else 4
                reason = "the new leader is unavailable"
                assert said(lines) == [of("follower.not_started", leader, epoch, [1, 2], reason=reason)]
            cluster.stop_replica(TP, 1, delete=False, epoch=5)
            stopped = {"event": "replica.stopped", **which, "leader_epoch": 2}
            removed = {"event": "fetcher.removed", "leader": 2, "fetcher_id": 0}
            assert said(lines) == [{**stopped, "delete_partition": False}, removed]
            log = cluster.nodes[1].manager.table.dirs.get(TP)
            cluster.stop_replica(TP, 1, delete=True, epoch=5)
            assert said(lines) == [
                {**stopped, "delete_partition": True},
                {"event": "log.deleted", **which, "log_dir": str(log.folder)},
            ]
            assert log.folder.parent == Path(folder) and log.folder.name.endswith("-delete")

    Cluster.run(tmp_path, scenario, brokers=BOTH)
