"""A cluster that `kwob test-cluster` runs elsewhere, behind the same handles."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from controller.admin.checks.truth import PartitionTruth, Truth
from controller.embedded.cluster import EmbeddedPlan
from controller.wire.fault_rows import Fault
from controller.wire.types import BrokerId, LeaderAndIsr, ReplicaAssignment, TopicPartition

#: How long the other side may take to begin to serve, and for one answer (seconds).
_BEGIN_S: Final = 30.0
_ANSWER_S: Final = 60.0
_AGAIN_S: Final = 0.05


class RemoteError(RuntimeError):
    """What the cluster elsewhere did not do, in its words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the handles of a cluster are served, and where clients here find its brokers and its pages of metrics."""

    host: str
    port: int
    token: str
    bootstrap: str
    #: the name of a program -> where its page is, `host:port`
    pages: Mapping[str, str] = field(default_factory=dict)


class Elsewhere:
    """A cluster elsewhere, made by the plan. It ends with the program that runs it, not by `stop`."""

    def __init__(self, place: Place, plan: EmbeddedPlan) -> None:
        self._place, self._plan = place, plan
        self._log_dirs: dict[int, list[Path]] = {}

    @property
    def bootstrap(self) -> str:
        """Brokers as clients take them."""
        return self._place.bootstrap

    async def metrics(self) -> Mapping[str, str]:
        """Where each program that runs serves its metrics, `host:port` by name."""
        return {name: self._place.pages[name] for name in await self._ask("metrics")}

    def log_dirs_of(self, broker_id: int) -> Sequence[Path]:
        """The log directories of a broker, there."""
        return self._log_dirs[broker_id]

    async def start(self) -> None:
        """Returns once every broker knows every other. Raises: RemoteError, TimeoutError."""
        plan = self._plan
        started = await self._begun(
            ids=plan.broker_ids, controllers=plan.controllers, racks=list(plan.racks), settings=dict(plan.settings),
            log_dirs=plan.log_dirs, seed=plan.seed, published=plan.published, pages=plan.page_ports,
        )  # fmt: skip
        self._log_dirs = {int(i): [Path(path) for path in paths] for i, paths in started["log_dirs"].items()}

    async def _begun(self, **request: Any) -> dict[str, Any]:
        """A port is there before a program listens behind it: what breaks is tried again for a while."""
        last: OSError | EOFError | None = None
        limit_s = asyncio.get_running_loop().time() + _BEGIN_S
        while asyncio.get_running_loop().time() < limit_s:
            try:
                started: dict[str, Any] = await self._ask("start", **request)
                return started
            except (ConnectionError, EOFError) as error:
                last = error
            await asyncio.sleep(_AGAIN_S)
        raise TimeoutError(f"waited {_BEGIN_S:g} s for {self._place.host}:{self._place.port}: {last}")

    async def stop(self) -> None:
        """Nothing: see the class."""

    async def trace(self) -> list[dict[str, Any]]:
        """The rows of all traces in the order of their time."""
        rows: list[dict[str, Any]] = await self._ask("trace")
        return rows

    async def events(self) -> Iterable[Mapping[str, Any]]:
        """The last log lines of all programs, oldest first."""
        lines: list[Mapping[str, Any]] = await self._ask("events")
        return lines

    async def set_faults(self, rows: Sequence[Fault]) -> None:
        """Has these faults in force, and no others."""
        await self._ask(
            "set_faults",
            rows=[row.model_dump(mode="json", exclude_defaults=True) | {"fault": row.fault} for row in rows],
        )

    async def truth(self) -> Truth:
        """What its ZooKeeper says of partitions."""
        rows = await self._ask("truth")
        return Truth(controller=None, controller_epoch=0, brokers={}, partitions=dict(map(_partition, rows)))

    async def active_controller(self) -> int | None:
        """The controller that holds the office."""
        found: int | None = await self._ask("active_controller")
        return found

    async def kill_controller(self, controller_id: int) -> None:
        """As by SIGKILL."""
        await self._ask("kill_controller", controller_id=controller_id)

    async def start_controller(self, controller_id: int) -> None:
        """Starts it again."""
        await self._ask("start_controller", controller_id=controller_id)

    async def _ask(self, do: str, **request: Any) -> Any:
        async with asyncio.timeout(_ANSWER_S):
            reader, writer = await asyncio.open_connection(self._place.host, self._place.port)
            try:
                writer.write(json.dumps({"token": self._place.token, "do": do, **request}).encode() + b"\n")
                await writer.drain()
                line = await reader.read(-1)
            finally:
                writer.close()
        if not line:
            raise EOFError("the connection ended without an answer")
        answer = json.loads(line)
        if "error" in answer:
            raise RemoteError(answer["error"])
        return answer["is"]


def _partition(row: Mapping[str, Any]) -> tuple[TopicPartition, PartitionTruth]:
    state = None
    if row["leader_epoch"] is not None:
        leader = None if row["leader"] is None else BrokerId(row["leader"])
        state = LeaderAndIsr(leader=leader, isr=tuple(map(BrokerId, row["isr"])), leader_epoch=row["leader_epoch"])
    assignment = ReplicaAssignment(replicas=tuple(map(BrokerId, row["replicas"])))
    return TopicPartition(row["topic"], row["partition"]), PartitionTruth(assignment=assignment, state=state)
