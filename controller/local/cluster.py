"""The processes of one local cluster on one data folder: ZooKeeper, controllers, brokers.

    DATA/cluster.json            what runs where (status.py)
    DATA/zookeeper/              ZooKeeper's data
    DATA/broker-1/data/          the log directory of broker 1
    DATA/logs/broker-1.log       JSON lines of each process
    DATA/traces/                 trace rows of brokers and controllers
    DATA/faults.jsonl            the faults in force (see wire/fault_rows.py)
    DATA/processes.json          what was started, should it be left behind (leftovers.py)

State survives a restart. A broker keeps its port when it starts again; controllers take a free one each time.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from controller.local.cluster_file import (
    BrokerRow,
    ClusterError,
    ClusterRow,
    ControllerRow,
    StartRow,
    down_by,
    downs_of,
    downs_to_end,
    read_cluster,
    require_log_dirs,
    write_start,
)
from controller.local.fault_file import edit_faults
from controller.local.leftovers import WhatRuns, end_processes, forget_registrations
from controller.local.marks import mark
from controller.local.place import require_free_ports
from controller.local.plan import BrokerPlan, ClusterPlan
from controller.local.processes import Child, ChildFailed, start_child
from controller.local.started import Started
from controller.wire import log_events as ev
from controller.wire.fault_rows import Kill, Stop
from controller.wire.zk_operations import ZkSessionExpired, ZkUnreachable
from controller.world.real.embedded_zookeeper import EmbeddedZooKeeper, EmbeddedZooKeeperError
from controller.world.real.java import JavaNotFound
from controller.world.real.ports import HOST
from controller.world.real.process_groups import began_at
from controller.world.real.zookeeper import KazooConnector

_START_S: Final = 60.0
#: What each broker of a process adds to that, and to the time it may take to end.
_START_EACH_S: Final = 5.0
_END_EACH_S: Final = 0.5
#: How long a process may take to end when the whole cluster ends: in order (a controlled shutdown, which the last
#: brokers cannot have), then at once.
_END_GRACE_S: Final = (2.0, 5.0)
#: A controlled shutdown retries `controlled.shutdown.max.retries` times, 5 s apart, and then goes anyway.
_SHUTDOWN_GRACE_S: Final = 45.0


@dataclass(slots=True)
class Cluster:
    """The running processes of a plan, in a folder that the caller owns (`own_folder`).

    `async with` starts them all and ends them all, whatever happens inside.
    """

    plan: ClusterPlan
    _zookeeper: EmbeddedZooKeeper | None = None
    _controllers: dict[int, Child] = field(default_factory=dict)
    _brokers: dict[int, Child] = field(default_factory=dict)
    #: is told of each broker that is up.
    on_broker_up: Callable[[int], None] = lambda broker_id: None
    #: is told, as one line, of what the user may wonder about.
    on_note: Callable[[str], None] = lambda note: None
    files: WhatRuns = field(init=False)

    def __post_init__(self) -> None:
        self.files = WhatRuns(self.plan.data, self.on_note)

    async def __aenter__(self) -> Cluster:
        """Raises: ClusterError, when something does not come up; what did come up is ended."""
        try:
            await self._start()
        except (ChildFailed, EmbeddedZooKeeperError, JavaNotFound) as error:
            await self._end()
            raise ClusterError(str(error)) from error
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._end()

    # -- single processes ----------------------------------------------------------------------------------------------

    def broker(self, broker_id: int) -> Child:
        """The process of a broker, alive or not. Raises: ClusterError for an id that is not in the plan."""
        if broker_id not in self._brokers:
            ids = ", ".join(str(broker.broker_id) for broker in self.plan.brokers)
            raise ClusterError(f"no broker {broker_id} in this cluster; there are {ids}")
        return self._brokers[broker_id]

    def controller(self, controller_id: int) -> Child:
        """The process of a controller, alive or not. Raises: ClusterError for an id that is not in the plan."""
        if controller_id not in self._controllers:
            ids = ", ".join(map(str, self.plan.controller_ids))
            raise ClusterError(f"no controller {controller_id} in this cluster; there are {ids}")
        return self._controllers[controller_id]

    async def kill_broker(self, broker_id: int) -> None:
        """SIGKILL. Raises: ClusterError, when it does not run."""
        self._require_broker(broker_id, running=True)
        mark(self.plan.data, f"kill broker {broker_id}")
        if self._is_shared(broker_id):
            await self._put_down(broker_id, Kill(id=f"kill-{broker_id}", broker=broker_id), ev.BROKER_KILLED)
        else:
            await self.broker(broker_id).kill()
        self.write_file()

    async def stop_broker(self, broker_id: int) -> bool:
        """Controlled shutdown. Returns whether it ended by itself in time. Raises: ClusterError, if it does not run."""
        child, ended = self.broker(broker_id), True
        self._require_broker(broker_id, running=True)
        mark(self.plan.data, f"stop broker {broker_id}")
        if self._is_shared(broker_id):
            await self._put_down(broker_id, Stop(id=f"stop-{broker_id}", broker=broker_id), ev.BROKER_STOPPED)
        else:
            ended = await child.terminate(_SHUTDOWN_GRACE_S)
        self.write_file()
        return ended

    async def start_broker(self, broker_id: int) -> None:
        """Starts it again, on its port and folder. Raises: ClusterError, when it runs or does not come up.

        When the process that it shares has ended, all brokers of that process start again.
        """
        self.broker(broker_id)
        require_log_dirs(self.plan.data, broker_id, self._rack(broker_id), self.plan.log_dirs(broker_id))
        self._require_broker(broker_id, running=False)
        downs = downs_to_end(self.plan.data, broker_id, self._rack(broker_id))
        mark(self.plan.data, f"start broker {broker_id}")
        try:
            if self.broker(broker_id).is_alive:
                await self._let_up(broker_id, downs)
            else:
                self._end_faults(downs)
                await self._start_group(self._group_of(broker_id))
        except ChildFailed as error:
            raise ClusterError(str(error)) from error
        finally:
            self.write_file()

    # A broker that shares its process goes down by a fault of its own, and comes up when that is cleared.

    def _group_of(self, broker_id: int) -> tuple[BrokerPlan, ...]:
        return next(group for group in self.plan.groups if any(b.broker_id == broker_id for b in group))

    def _is_shared(self, broker_id: int) -> bool:
        return len(self._group_of(broker_id)) > 1

    def _require_broker(self, broker_id: int, *, running: bool) -> None:
        if (self.broker(broker_id).is_alive and not self._downs(broker_id)) != running:
            raise ClusterError(f"broker-{broker_id} {'does not run' if running else 'runs already'}")

    def _downs(self, broker_id: int) -> list[Kill | Stop]:
        """The faults that have a broker down now."""
        return downs_of(self.plan.fault_file, broker_id, self._rack(broker_id))

    def _rack(self, broker_id: int) -> str | None:
        return next(broker.rack for broker in self.plan.brokers if broker.broker_id == broker_id)

    def downs(self) -> dict[int, str]:
        """broker id -> the fault that has it down although its process runs."""
        by_file = {b.broker_id: down_by(self.plan.fault_file, b.broker_id, b.rack) for b in self.plan.brokers}
        return {broker_id: fault for broker_id, fault in by_file.items() if fault is not None}

    async def _put_down(self, broker_id: int, row: Kill | Stop, event: str) -> None:
        child = self.broker(broker_id)
        offset = child.log_end()
        edit_faults(self.plan.fault_file, lambda present: (*present, row))
        try:
            await child.wait_for_rows(_about(broker_id, event), 1, timeout_s=_SHUTDOWN_GRACE_S, offset=offset)
        except ChildFailed as error:
            raise ClusterError(str(error)) from error

    def _end_faults(self, ended: Sequence[Kill | Stop]) -> None:
        edit_faults(self.plan.fault_file, lambda present: [row for row in present if row not in ended])

    async def _let_up(self, broker_id: int, downs: Sequence[Kill | Stop]) -> None:
        child = self.broker(broker_id)
        with suppress(TimeoutError):  # before the process has acted on a fault, its end would start nobody
            is_down = _about(broker_id, ev.BROKER_KILLED, ev.BROKER_STOPPED)
            is_either = _about(broker_id, ev.BROKER_STARTED, ev.BROKER_KILLED, ev.BROKER_STOPPED)
            await child.wait_for_last(is_either, is_down, timeout_s=_SHUTDOWN_GRACE_S)
        offset = child.log_end()
        self._end_faults(downs)
        await child.wait_for_rows(_about(broker_id, ev.BROKER_STARTED), 1, timeout_s=_START_S, offset=offset)

    async def kill_controller(self, controller_id: int) -> None:
        """SIGKILL. Raises: ClusterError, when it does not run."""
        child = self.controller(controller_id)
        _require(child, running=True)
        mark(self.plan.data, f"kill controller {controller_id}")
        await child.kill()
        self.write_file()

    async def stop_controller(self, controller_id: int) -> bool:
        """SIGTERM: it resigns. Returns whether it ended by itself in time. Raises: ClusterError, if it does not run."""
        child = self.controller(controller_id)
        _require(child, running=True)
        mark(self.plan.data, f"stop controller {controller_id}")
        ended = await child.terminate(*_END_GRACE_S)
        self.write_file()
        return ended

    async def start_controller(self, controller_id: int) -> None:
        """Starts it again, on a free port. Raises: ClusterError, when it runs or does not come up."""
        _require(self.controller(controller_id), running=False)
        mark(self.plan.data, f"start controller {controller_id}")
        try:
            await self._start_controller(controller_id)
        except ChildFailed as error:
            raise ClusterError(str(error)) from error
        finally:
            self.write_file()

    @property
    def is_zookeeper_up(self) -> bool:
        """Whether ZooKeeper's process runs."""
        return self._zookeeper is not None and self._zookeeper.running

    async def restart_zookeeper(self) -> None:
        """Starts it again on its port and data; brokers and controllers find it by themselves. Raises: ClusterError."""
        assert self._zookeeper is not None, "the cluster has not been started"
        await self._zookeeper.stop()
        try:
            await self._zookeeper.start()
        except (EmbeddedZooKeeperError, JavaNotFound) as error:
            raise ClusterError(str(error)) from error
        finally:
            self.write_file()

    @property
    def children(self) -> dict[str, Child]:
        """All controllers and brokers by name, alive or not."""
        return {child.name: child for child in (*self._controllers.values(), *self._brokers.values())}

    def row(self) -> ClusterRow:
        """What runs now, as the cluster file tells it."""
        return ClusterRow(
            bootstrap=self.plan.bootstrap,
            zookeeper=self.plan.zookeeper,
            controllers=[ControllerRow(id=i, pid=_pid(self._controllers.get(i))) for i in self.plan.controller_ids],
            brokers=[
                BrokerRow(
                    id=broker.broker_id,
                    pid=_pid(self._brokers.get(broker.broker_id)),
                    rack=broker.rack,
                    listener=f"{HOST}:{broker.port}",
                    log_dirs=[str(path) for path in self.plan.log_dirs(broker.broker_id)],
                )
                for broker in self.plan.brokers
            ],
        )

    def start_row(self) -> StartRow:
        """What the next start on the folder takes where nothing else is given."""
        plan, settings = self.plan, list(self.plan.settings)
        return StartRow(settings=settings, broker_processes=plan.broker_processes, metrics_port=plan.metrics_port)

    # -- all of them ---------------------------------------------------------------------------------------------------

    async def _start(self) -> None:
        if left := await end_processes(self.plan.data):
            self.on_note(f"an earlier kwob up of this folder was killed; ended what it left: {', '.join(left)}")
        require_free_ports(self.plan.ports)
        controllers = {*self.plan.controller_ids, *self._earlier_controllers()}
        self.write_file()
        self.plan.fault_file.write_text("", encoding="utf-8")
        is_new = not (self.plan.data / "zookeeper" / "data").exists()
        self._zookeeper = EmbeddedZooKeeper(self.plan.data / "zookeeper", host=HOST, port=self.plan.zookeeper_port)
        await self._zookeeper.start()
        self.write_file()
        if not is_new:
            await self._forget_registrations(controllers)
        await _all_or_first_error(
            *(self._start_controller(controller_id) for controller_id in self.plan.controller_ids),
            *(self._start_group(group) for group in self.plan.groups),
        )
        self.write_file()
        write_start(self.plan.data, self.start_row())  # not before: who was refused would be refused for ever
        self.files.is_up = True

    def _earlier_controllers(self) -> set[int]:
        try:
            return {controller.id for controller in read_cluster(self.plan.data).controllers}
        except ClusterError:
            return set()

    async def _forget_registrations(self, controllers: set[int]) -> None:
        """Those that dead processes of this folder left: nothing of it runs now but ZooKeeper."""
        connector = KazooConnector(self.plan.zookeeper)
        try:
            session = await connector.connect(on_watch=lambda event: None, on_expired=lambda: None)
            try:
                gone = await forget_registrations(session, controllers)
            finally:
                await session.close()
        except (ZkUnreachable, ZkSessionExpired) as error:
            raise ClusterError(f"ZooKeeper does not answer: {error}") from error
        if gone:
            self.on_note(f"the last run did not end in order; removed what it had registered: {', '.join(gone)}")

    async def _start_controller(self, controller_id: int) -> None:
        name = f"controller-{controller_id}"
        argv = self.plan.controller_arguments(controller_id)
        child = self._controllers[controller_id] = await self._start_program(name, argv, self.plan.settings)
        self.write_file()
        await child.wait_for_event(ev.CONTROLLER_STARTED, timeout_s=_START_S)

    async def _start_group(self, group: Sequence[BrokerPlan]) -> None:
        ids = [broker.broker_id for broker in group]
        for broker_id in ids:
            for path in self.plan.log_dirs(broker_id):
                path.mkdir(parents=True, exist_ok=True)
        argv = self.plan.broker_arguments(group)
        name = f"broker-{ids[0]}" if len(ids) == 1 else f"brokers-{ids[0]}-{ids[-1]}"
        child = await self._start_program(name, argv, self.plan.broker_settings)
        self._brokers.update(dict.fromkeys(ids, child))
        self.write_file()

        def is_up(row: Mapping[str, Any]) -> bool:
            if row.get("event") == ev.BROKER_STARTED:
                self.on_broker_up(int(row["broker_id"]))
                return True
            return False

        await child.wait_for_rows(is_up, len(ids), timeout_s=_START_S + _START_EACH_S * len(ids))

    async def _start_program(self, name: str, argv: Sequence[str], settings: Sequence[str]) -> Child:
        overrides = [word for setting in settings for word in ("--override", setting)]
        more = ["--zookeeper", self.plan.zookeeper, *overrides, "--log-level", self.plan.log_level]
        command = [sys.executable, "-m", *argv, *more]
        return await start_child(name, command, log_path=self.plan.log_path(name), cwd=self.plan.data)

    async def _end(self) -> None:
        """Brokers, then controllers, then ZooKeeper; nothing that was started is left. Not to be cut half way."""
        ending = asyncio.ensure_future(self._end_all())
        try:
            await asyncio.shield(ending)
        finally:
            await ending

    async def _end_all(self) -> None:
        at_first, then = _END_GRACE_S
        then += _END_EACH_S * max((len(group) for group in self.plan.groups), default=0)
        for children in (self._brokers, self._controllers):
            unique = {child.name: child for child in children.values()}
            await asyncio.gather(*(child.terminate(at_first, then) for child in unique.values()))
        if self._zookeeper is not None:
            await self._zookeeper.stop()
            self._zookeeper = None
        self.write_file()

    def write_file(self) -> None:
        """Brings the files that tell what runs up to date. Raises: OSError, while it starts."""
        started = {name: Started(child.pid, child.began) for name, child in self.children.items()}
        if self._zookeeper is not None and self.is_zookeeper_up:
            started["zookeeper"] = Started(self._zookeeper.pid, began_at(self._zookeeper.pid))
        self.files.write(self.row(), started)


async def _all_or_first_error(*steps: Coroutine[Any, Any, None]) -> None:
    """Runs all at once; the first that fails ends the others and is raised."""
    tasks = [asyncio.ensure_future(step) for step in steps]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _about(broker_id: int, *events: str) -> Callable[[Mapping[str, Any]], bool]:
    return lambda row: row.get("event") in events and row.get("broker_id") == broker_id


def _pid(child: Child | None) -> int | None:
    return child.pid if child is not None and child.is_alive else None


def _require(child: Child, *, running: bool) -> None:
    if child.is_alive != running:
        raise ClusterError(f"{child.name} {'runs already' if child.is_alive else 'does not run'}")
