"""A test cluster of real processes with a real ZooKeeper: what `kwob up` runs, behind the same handles."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from controller.admin.checks.truth import Truth, read_truth
from controller.embedded.backends import EVENTS_KEPT, looker, trace_rows
from controller.embedded.cluster import EmbeddedPlan
from controller.local.cluster import Cluster
from controller.local.fault_file import write_faults
from controller.local.place import own_folder
from controller.local.plan import BrokerPlan, plan_cluster
from controller.local.processes import log_rows
from controller.local.readiness import wait_until_whole
from controller.wire import log_events as ev
from controller.wire.fault_rows import Fault
from controller.wire.types import BrokerId
from controller.world.ports import ZkSession
from controller.world.real.ports import free_ports
from controller.world.real.zookeeper import KazooConnector

#: How long brokers may take to look at the faults: they do every 0.2 s.
_TAKEN_OVER_S: Final = 30.0


class InProcesses:
    """`kwob up` without a terminal: real processes, a real ZooKeeper (needs Java, which comes with kwob)."""

    def __init__(self, plan: EmbeddedPlan) -> None:
        zookeeper_port, *ports = free_ports(plan.brokers + 1)
        self._plan = plan_cluster(
            data=plan.folder,
            brokers=plan.brokers,
            controllers=plan.controllers,
            racks=plan.racks,
            ports=ports,
            zookeeper_port=zookeeper_port,
            settings=[f"{name}={value}" for name, value in plan.all_settings.items()],
            log_dir_count=plan.log_dirs,
            ids=plan.ids,
            metrics_port=free_ports(plan.brokers + plan.controllers)[0] if plan.metrics else None,
        )
        self._cluster = Cluster(self._plan)
        self._resources = ExitStack()
        self._zookeeper: ZkSession | None = None
        self._rows: tuple[Fault, ...] = ()

    @property
    def bootstrap(self) -> str:
        """Brokers as clients take them."""
        return self._plan.bootstrap

    async def metrics(self) -> Mapping[str, str]:
        """Where each program that runs serves its metrics, `host:port` by name."""
        down, cluster = self._cluster.downs(), self._cluster
        brokers = [b.broker_id for b in self._plan.brokers if b.broker_id not in down]
        run = {f"broker-{number}" for number in brokers if cluster.broker(number).is_alive}
        run |= {f"controller-{n}" for n in self._plan.controller_ids if cluster.controller(n).is_alive}
        return {name: address for name, address in self._plan.metrics.items() if name in run}

    def log_dirs_of(self, broker_id: int) -> Sequence[Path]:
        """The log directories of a broker."""
        return self._plan.log_dirs(broker_id)

    async def trace(self) -> list[dict[str, Any]]:
        """The rows of all traces in the order of their time."""
        return trace_rows(self._plan.trace_dir)

    async def events(self) -> Iterable[Mapping[str, Any]]:
        """The last log lines of all programs, oldest first."""
        lines = [row for path in sorted((self._plan.data / "logs").glob("*.log")) for row in log_rows(path)]
        return sorted(lines, key=lambda row: str(row.get("ts", "")))[-EVENTS_KEPT:]

    async def start(self) -> None:
        """Returns once every broker knows every other. Raises: ClusterError, TimeoutError."""
        self._resources.enter_context(own_folder(self._plan.data))
        try:
            await self._cluster.__aenter__()
        except BaseException:
            self._resources.close()
            raise
        try:
            missing = await wait_until_whole(self.bootstrap, [BrokerId(b.broker_id) for b in self._plan.brokers])
            if missing is not None:
                raise TimeoutError(missing)
            self._zookeeper = await looker(KazooConnector(self._plan.zookeeper))
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Ends all of it."""
        try:
            if self._zookeeper is not None:
                await self._zookeeper.close()
        finally:
            await self._cluster.__aexit__()
            self._resources.close()

    async def set_faults(self, rows: Sequence[Fault]) -> None:
        """Returns once the brokers that run have these faults in force, and no others; what has a time of its own is
        not waited for. Raises: TimeoutError."""
        before, self._rows = self._rows, tuple(rows)
        write_faults(self._plan.fault_file, rows)
        changed = {row.id: row for row in (*before, *rows) if (row in before) != (row in rows)}
        if self._zookeeper is not None:
            waits = (self._taken_over(broker, row) for broker in self._plan.brokers for row in changed.values())
            await asyncio.gather(*waits)

    async def _taken_over(self, broker: BrokerPlan, row: Fault) -> None:
        """Brokers look at the file now and then, and log what they find there."""
        if not row.concerns(BrokerId(broker.broker_id), broker.rack) or (row.from_ms, row.until_ms) != (None, None):
            return
        event = ev.FAULT_STARTED if row in self._rows else ev.FAULT_ENDED
        about = {"broker_id": broker.broker_id, "id": row.id, "fault": row.fault}
        try:
            await self._cluster.broker(broker.broker_id).wait_for_last(
                lambda line: line.get("event") in (ev.FAULT_STARTED, ev.FAULT_ENDED) and about.items() <= line.items(),
                lambda line: line["event"] == event,
                timeout_s=_TAKEN_OVER_S,
            )
        except TimeoutError:
            raise TimeoutError(
                f"broker {broker.broker_id} did not log {event} of {row.id} in {_TAKEN_OVER_S:g} s"
            ) from None

    async def truth(self) -> Truth:
        """What its ZooKeeper says."""
        assert self._zookeeper is not None, "it runs"
        return await read_truth(self._zookeeper)

    async def active_controller(self) -> int | None:
        """The controller that was elected last; None when that run of it has ended."""
        elected = [
            row
            for number in self._plan.controller_ids
            for row in log_rows(self._plan.log_path(f"controller-{number}"))
            if row.get("event") == ev.CONTROLLER_ELECTED
        ]
        if not elected:
            return None
        last = max(elected, key=lambda row: int(row["controller_epoch"]))
        child = self._cluster.controller(int(last["controller"]))
        holds = child.is_alive and last in log_rows(child.log_path, child.log_offset)
        return int(last["controller"]) if holds else None

    async def kill_controller(self, controller_id: int) -> None:
        """As by SIGKILL. Nothing when it is dead."""
        if self._cluster.controller(controller_id).is_alive:
            await self._cluster.kill_controller(controller_id)

    async def start_controller(self, controller_id: int) -> None:
        """Starts it again; nothing when it runs."""
        if not self._cluster.controller(controller_id).is_alive:
            await self._cluster.start_controller(controller_id)
