"""What stands behind the handles of a test cluster, on an event loop in a thread beside the test's.

Here: everything in this process. Real processes and a real ZooKeeper are in `processes`.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import json
import os
import threading
from collections import deque
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from controller.admin.checks.truth import Truth, read_truth
from controller.embedded.cluster import EmbeddedCluster, EmbeddedPlan
from controller.wire.fault_rows import Fault
from controller.world.ports import ZkConnector, ZkSession

Result = TypeVar("Result")
#: Log lines that are kept for a report.
EVENTS_KEPT: Final = 400


class LoopThread:
    """An event loop in a daemon thread. `run` waits for a coroutine there; `close` ends it and all its tasks."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._process = os.getpid()
        #: Whatever began before the end is cancelled by it: nothing begins unseen beside it. An interrupt may close.
        self._turn = threading.RLock()
        self._is_closed = False
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.run_until_complete(self._end_tasks())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    async def _end_tasks(self) -> None:
        """What a cancelled `run` left: a task whose loop is gone would keep its sockets open."""
        while left := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
        await asyncio.sleep(0)  # closed transports let their sockets go in the next turn

    @property
    def is_of_this_process(self) -> bool:
        """Whether it was started here. In a process that was forked off that one its thread is not there."""
        return self._process == os.getpid()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Its result, or what it raises. An interrupt of the waiting thread cancels it.

        Raises: RuntimeError in a process that was forked off, and where the loop was closed, also meanwhile.
        """
        if not self.is_of_this_process:
            work.close()
            raise RuntimeError(f"the cluster runs in process {self._process}, which this one was forked off")
        with self._turn:
            if self._is_closed:
                work.close()
                raise RuntimeError("the cluster was stopped")
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            with self._turn:  # who closes has told the loop first, and notes it in its turn
                is_closed = self._is_closed
            if is_closed:
                raise RuntimeError("the cluster was stopped meanwhile") from None
            raise
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """Ends the loop and the thread. Idempotent."""
        with self._turn:
            if not self._is_closed:
                self._loop.call_soon_threadsafe(self._loop.stop)
            self._is_closed = True
        self._thread.join()


class Backend(Protocol):
    """A cluster that runs."""

    @property
    def bootstrap(self) -> str:
        """Brokers as clients take them."""
        ...

    async def metrics(self) -> Mapping[str, str]:
        """Where each program that runs serves its metrics, `host:port` by name."""
        ...

    def log_dirs_of(self, broker_id: int) -> Sequence[Path]:
        """The log directories of a broker."""
        ...

    async def trace(self) -> list[dict[str, Any]]:
        """The rows of all traces in the order of their time."""
        ...

    async def events(self) -> Iterable[Mapping[str, Any]]:
        """The last log lines of all programs, oldest first."""
        ...

    async def start(self) -> None:
        """Returns once every broker knows every other."""
        ...

    async def stop(self) -> None:
        """Ends all of it."""
        ...

    async def set_faults(self, rows: Sequence[Fault]) -> None:
        """Has these faults in force, and no others."""
        ...

    async def truth(self) -> Truth:
        """What its ZooKeeper says."""
        ...

    async def active_controller(self) -> int | None:
        """The controller that holds the office."""
        ...

    async def kill_controller(self, controller_id: int) -> None:
        """As by SIGKILL."""
        ...

    async def start_controller(self, controller_id: int) -> None:
        """Starts it again."""
        ...


class InThisProcess:
    """Controllers, brokers and ZooKeeper on one event loop."""

    def __init__(self, plan: EmbeddedPlan) -> None:
        self._plan = plan
        self._lines: deque[Mapping[str, Any]] = deque(maxlen=EVENTS_KEPT)
        self._cluster = EmbeddedCluster(plan, self._lines.append)
        self._zookeeper: ZkSession | None = None

    @property
    def bootstrap(self) -> str:
        """Brokers as clients take them."""
        return self._cluster.bootstrap

    async def metrics(self) -> Mapping[str, str]:
        """Where each program that runs serves its metrics, `host:port` by name."""
        return self._cluster.metrics

    def log_dirs_of(self, broker_id: int) -> Sequence[Path]:
        """The log directories of a broker."""
        return self._plan.log_dirs_of(broker_id)

    async def trace(self) -> list[dict[str, Any]]:
        """The rows of all traces in the order of their time."""
        return trace_rows(self._plan.trace_dir)

    async def events(self) -> Iterable[Mapping[str, Any]]:
        """The last log lines of all programs, oldest first."""
        return tuple(self._lines)

    async def start(self) -> None:
        """Returns once every broker knows every other."""
        await self._cluster.start()
        try:
            self._zookeeper = await looker(self._cluster.zookeeper())
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Ends all of it."""
        try:
            if self._zookeeper is not None:
                await self._zookeeper.close()
        finally:
            await self._cluster.stop()

    async def set_faults(self, rows: Sequence[Fault]) -> None:
        """Has these faults in force, and no others."""
        self._cluster.set_faults(rows)

    async def truth(self) -> Truth:
        """What its ZooKeeper says."""
        assert self._zookeeper is not None, "it runs"
        return await read_truth(self._zookeeper)

    async def active_controller(self) -> int | None:
        """The controller that holds the office, as it sees it itself."""
        return self._cluster.active_controller

    async def kill_controller(self, controller_id: int) -> None:
        """As by SIGKILL."""
        await self._cluster.kill_controller(controller_id)

    async def start_controller(self, controller_id: int) -> None:
        """Starts it again."""
        await self._cluster.start_controller(controller_id)


async def looker(zookeeper: ZkConnector) -> ZkSession:
    """A session that only reads."""
    return await zookeeper.connect(on_watch=lambda event: None, on_expired=lambda: None)


def trace_rows(folder: Path) -> list[dict[str, Any]]:
    """The rows of all trace files of a folder in the order of their time; a torn last line is left out."""
    rows = [
        json.loads(line)
        for path in sorted(folder.glob("*.jsonl"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if line.endswith("}")
    ]
    return sorted(rows, key=lambda row: (row["ts"], row["broker"], row["seq"]))
