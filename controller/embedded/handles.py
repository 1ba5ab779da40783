"""A Kafka cluster as a test holds it: what to connect to, what to break, what to wait for. Every call blocks."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import weakref
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import Literal, Self, get_args

from controller.embedded.alike import make_alike, planned
from controller.embedded.backends import Backend, InThisProcess, LoopThread
from controller.embedded.calls import Handles
from controller.embedded.cluster import EmbeddedPlan
from controller.local.cluster_file import ClusterError

Mode = Literal["embedded", "processes"]


class KafkaCluster(Handles):
    """A cluster of its own: `start` and `stop`, or `with KafkaCluster(...) as cluster`.

    `mode="embedded"` runs all in this process, with ZooKeeper in memory and without Java, in about a tenth of a second;
    `mode="processes"` is what `kwob up` runs. Both have short timeouts (`QUICK_SETTINGS` of controller/embedded),
    which `settings` (Kafka's property names) overrule. Ports are free ones, so clusters do not meet, also not those of
    pytest-xdist's workers. Broker ids are 1, 2, ..., controllers 901, 902, ...
    """

    def __init__(
        self,
        *,
        brokers: int | None = None,
        controllers: int = 1,
        racks: Sequence[str] | None = None,
        settings: Mapping[str, str] | None = None,
        log_dirs: int | None = None,
        mode: Mode = "embedded",
        folder: Path | str | None = None,
        seed: int | None = None,
        metrics: bool = False,
        like: Path | str | None = None,
        scale: Fraction | float | str = 0,
    ) -> None:
        """`folder`: for its data; a temporary one, which `stop` removes, when none is given. `metrics`: every program
        serves a page for Prometheus. `like`: a cluster file (`kwob snapshot`) whose brokers, racks, settings and topics
        the cluster gets, with that `scale` of its data.

        Raises: ValueError for what cannot be, or what the file and the call both say; ClusterError for a file that
        cannot be used.
        """
        if mode not in get_args(Mode):
            raise ValueError(f"mode is {mode!r}; there are {' and '.join(get_args(Mode))}")
        #: One thread at a time starts or stops; whom an interrupt stops in its start, stops in that thread.
        self._turn = threading.RLock()
        self._is_temporary, self._process = folder is None, os.getpid()
        place = Path(tempfile.mkdtemp(prefix="kwob-") if folder is None else folder)
        if self._is_temporary:  # where no stop comes, as of one that was never started
            weakref.finalize(self, _remove, place, self._process)
        try:
            plan, self._like = planned(
                place, brokers=brokers, controllers=controllers, racks=racks, settings=settings, log_dirs=log_dirs,
                seed=seed, metrics=metrics, like=like, scale=scale,
            )  # fmt: skip
        except BaseException:
            self._remove_temporary(place)
            raise
        self._has_shape(plan)
        self._mode: Mode = mode

    # -- start and end -------------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Returns once every broker serves and knows every other. No fault of a former run is in force.

        Raises: RuntimeError, where it runs already; ClusterError, where the folder has data of another embedded one.
        """
        with self._turn:
            self._require_stopped()
            self._faults.clear()
            self._loop = LoopThread("kwob-cluster")
            try:
                self._backend = self._run(self._started())
                if self._like is not None:
                    self._run(make_alike(self.bootstrap_servers, self._like))
            except BaseException:
                self.stop()
                raise
        return self

    async def _started(self) -> Backend:
        backend: Backend
        if self._mode == "embedded":
            _require_no_data(self._plan)
            backend = InThisProcess(self._plan)
        else:
            from controller.embedded.processes import InProcesses  # kazoo and Java are for who asks for them

            backend = InProcesses(self._plan)
        await backend.start()
        return backend

    def stop(self) -> None:
        """Ends the cluster and removes its temporary folder. Idempotent."""
        if self._loop is not None and not self._loop.is_of_this_process:
            return  # a process that was forked off: all of it belongs to the other one
        with self._turn:
            loop, backend = self._loop, self._backend
            self._loop = self._backend = None
            try:
                if loop is not None and backend is not None:
                    loop.run(backend.stop())
            finally:
                if loop is not None:
                    loop.close()
                self._remove_temporary(self.folder)

    def _remove_temporary(self, place: Path) -> None:
        if self._is_temporary:
            _remove(place, self._process)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _require_no_data(plan: EmbeddedPlan) -> None:
    """Brokers refuse data of a cluster whose znodes are gone, as if they had come to a wrong one."""
    for place in (place for broker_id in plan.broker_ids for place in plan.log_dirs_of(broker_id)):
        if place.is_dir() and any(place.iterdir()):
            raise ClusterError(
                f"{plan.folder} has data of another embedded cluster, whose ZooKeeper is in memory: nobody can go on "
                'with it; choose another folder, or remove it; mode="processes" goes on where it was'
            )


def _remove(folder: Path, process: int) -> None:
    """A process that was forked off leaves it to the other one."""
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)
