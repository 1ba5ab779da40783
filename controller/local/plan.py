"""What a local cluster shall run, and where it keeps what: the plan that `cluster.py` carries out."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from controller.local.place import HOST

#: Controllers are no brokers, so their ids must not meet: brokers count from 1.
FIRST_CONTROLLER_ID: Final = 901


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerPlan:
    """One broker to run."""

    broker_id: int
    port: int
    rack: str | None


#: From more brokers on, several share a process.
ALONE_MAX: Final = 10
#: The least `replica.fetch.wait.max.ms` for so many brokers, unless it is set: an idle follower asks each leader that
#: often, so the requests of an idle cluster grow with the square of the brokers.
_FETCH_WAITS_MS: Final = ((60, 15_000), (30, 5_000), (10, 2_000))
_FETCH_WAIT: Final = "replica.fetch.wait.max.ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPlan:
    """What to run. Settings are `name=value` for controllers and brokers alike.

    `broker_processes` is how many processes the brokers share; None: one each up to `ALONE_MAX` brokers, above it as
    many as there are processors, and two at least. `log_dir_count` is how many log directories each broker has.
    """

    data: Path
    brokers: tuple[BrokerPlan, ...]
    controller_ids: tuple[int, ...]
    zookeeper_port: int
    settings: tuple[str, ...] = ()
    broker_processes: int | None = None
    log_dir_count: int = 1
    log_level: str = "info"

    @property
    def bootstrap(self) -> str:
        """Brokers as clients take them: all, or the first ones of many."""
        return ",".join(f"{HOST}:{broker.port}" for broker in self.brokers[:ALONE_MAX])

    @property
    def groups(self) -> tuple[tuple[BrokerPlan, ...], ...]:
        """The brokers of each process."""
        count = len(self.brokers)
        wanted = self.broker_processes or (count if count <= ALONE_MAX else max(2, os.cpu_count() or 1))
        each, more = divmod(count, min(wanted, count))
        cuts = [n * each + min(n, more) for n in range(min(wanted, count) + 1)]
        return tuple(self.brokers[a:b] for a, b in itertools.pairwise(cuts))

    @property
    def broker_settings(self) -> tuple[str, ...]:
        """The settings of the brokers: a large cluster of idle brokers asks less often, unless told otherwise."""
        least = next((ms for brokers, ms in _FETCH_WAITS_MS if len(self.brokers) > brokers), None)
        if least is None or any(s.partition("=")[0].strip() == _FETCH_WAIT for s in self.settings):
            return self.settings
        return (f"{_FETCH_WAIT}={least}", *self.settings)

    @property
    def zookeeper(self) -> str:
        """ZooKeeper as `--zookeeper` takes it."""
        return f"{HOST}:{self.zookeeper_port}"

    @property
    def fault_file(self) -> Path:
        """Where the faults in force stand."""
        return self.data / "faults.jsonl"

    @property
    def trace_dir(self) -> Path:
        """Where brokers and controllers write their traces."""
        return self.data / "traces"

    def controller_arguments(self, controller_id: int) -> list[str]:
        """What `python -m` gets for a controller, but for what all programs get."""
        argv = ["controller", "run", "--controller-id", str(controller_id), "--listener", f"{HOST}:0"]
        return [*argv, "--trace-dir", str(self.trace_dir)]

    def log_path(self, name: str) -> Path:
        """The log file of a process."""
        return self.data / "logs" / f"{name}.log"

    def log_dirs(self, broker_id: int | str) -> tuple[Path, ...]:
        """Where a broker keeps its partitions; the id may be the text `{id}`, which the program fills in."""
        folder = self.data / f"broker-{broker_id}"
        return (folder / "data", *(folder / f"data-{number}" for number in range(2, self.log_dir_count + 1)))


def plan_cluster(
    *,
    data: Path,
    brokers: int,
    controllers: int,
    racks: Sequence[str],
    ports: Sequence[int],
    zookeeper_port: int,
    settings: Sequence[str] = (),
    broker_processes: int | None = None,
    log_dir_count: int = 1,
    log_level: str = "info",
) -> ClusterPlan:
    """Brokers 1, 2, ... with the racks in turn and the given ports; controllers 901, 902, ..."""
    return ClusterPlan(
        data=data.resolve(),
        brokers=tuple(
            BrokerPlan(broker_id=1 + index, port=ports[index], rack=racks[index % len(racks)] if racks else None)
            for index in range(brokers)
        ),
        controller_ids=tuple(FIRST_CONTROLLER_ID + index for index in range(controllers)),
        zookeeper_port=zookeeper_port,
        settings=tuple(settings),
        broker_processes=broker_processes,
        log_dir_count=log_dir_count,
        log_level=log_level,
    )  # fmt: skip
