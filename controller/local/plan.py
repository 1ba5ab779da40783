"""What a local cluster shall run, and where it keeps what: the plan that `cluster.py` carries out."""

from __future__ import annotations

import itertools
import os
import resource
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from controller.local.place import PortToTake
from controller.world.real.net import RESERVED_FILES
from controller.world.real.ports import HOST

#: Controllers are no brokers, so their ids must not meet: brokers count from 1.
FIRST_CONTROLLER_ID: Final = 901
#: Settings that `kwob up` gives each program itself -> the flag that says them.
OWN_SETTINGS: Final = {
    "log.dirs": "--log-dirs N gives each broker N directories below its folder in --data",
    "log.dir": "--log-dirs N gives each broker N directories below its folder in --data",
    "broker.id": "--brokers N gives ids 1 to N",
    "node.id": "--brokers N gives ids 1 to N",
    "broker.rack": "--racks A,B,C gives them to the brokers in turn",
    "listeners": "--bootstrap-port says the first of the ports",
    "advertised.listeners": "all programs would have the same one; each tells of the port that it has",
    "zookeeper.connect": "--zookeeper-port says the port",
}


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
_FETCH_WAITS_MS: Final = ((60, 25_000), (30, 5_000), (10, 2_000))
_FETCH_WAIT: Final = "replica.fetch.wait.max.ms"
#: Kafka's default for __consumer_offsets, which is not created on fewer brokers; `config/server.properties` has 1.
_GROUP_REPLICAS_MAX: Final = 3
_GROUP_REPLICAS: Final = "offsets.topic.replication.factor"


def files_needed(brokers: int, in_one_process: int) -> int:
    """Open files of a process with so many of the brokers, when each follows each, has some clients, and those that no
    connection may have are left.
    """
    return 2 * in_one_process * (brokers - 1) + 10 * in_one_process + RESERVED_FILES


def files_allowed() -> int | None:
    """Files that a process of brokers may open, which raises its limit to the hard one; None: as many as it likes."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if hard == resource.RLIM_INFINITY else hard


def _shared_processes(brokers: int) -> int:
    processes, allowed = max(2, os.cpu_count() or 1), files_allowed()
    while allowed is not None and processes < brokers and files_needed(brokers, -(-brokers // processes)) > allowed:
        processes += 1
    return processes


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPlan:
    """What to run. Settings are `name=value` for controllers and brokers alike.

    With `metrics_port` every broker and every controller serves metrics, on one port after the other.
    `broker_processes` is how many processes the brokers share; None: one each up to `ALONE_MAX` brokers, above it as
    many as there are processors, two at least, and more where one may not open enough files. `log_dir_count`
    is how many log directories each broker has.
    """

    data: Path
    brokers: tuple[BrokerPlan, ...]
    controller_ids: tuple[int, ...]
    zookeeper_port: int
    settings: tuple[str, ...] = ()
    broker_processes: int | None = None
    log_dir_count: int = 1
    log_level: str = "info"
    metrics_port: int | None = None

    @property
    def bootstrap(self) -> str:
        """Brokers as clients take them: all, or the first ones of many."""
        return ",".join(f"{HOST}:{broker.port}" for broker in self.brokers[:ALONE_MAX])

    @property
    def groups(self) -> tuple[tuple[BrokerPlan, ...], ...]:
        """The brokers of each process."""
        count = len(self.brokers)
        processes = self.broker_processes or (count if count <= ALONE_MAX else _shared_processes(count))
        each, more = divmod(count, min(processes, count))
        cuts = [n * each + min(n, more) for n in range(min(processes, count) + 1)]
        return tuple(self.brokers[a:b] for a, b in itertools.pairwise(cuts))

    @property
    def broker_settings(self) -> tuple[str, ...]:
        """The settings of the brokers, first those that the size of the cluster asks for, unless told otherwise: many
        idle brokers ask less often, and groups need no more brokers than there are."""
        least = next((ms for brokers, ms in _FETCH_WAITS_MS if len(self.brokers) > brokers), None)
        fit = {} if least is None else {_FETCH_WAIT: least}
        if len(self.brokers) < _GROUP_REPLICAS_MAX:
            fit[_GROUP_REPLICAS] = len(self.brokers)
        given = {setting.partition("=")[0].strip() for setting in self.settings}
        return (*(f"{name}={value}" for name, value in fit.items() if name not in given), *self.settings)

    @property
    def zookeeper(self) -> str:
        """ZooKeeper as `--zookeeper` takes it."""
        return f"{HOST}:{self.zookeeper_port}"

    @property
    def ports(self) -> tuple[PortToTake, ...]:
        """The ports that its programs will listen on; controllers take free ones for what is no page of metrics."""
        brokers = [PortToTake(b.port, f"broker {b.broker_id}", "--bootstrap-port") for b in self.brokers]
        pages = [
            PortToTake(int(page.rpartition(":")[2]), f"the metrics of {name}", "--metrics-port")
            for name, page in self.metrics.items()
        ]
        return (*brokers, PortToTake(self.zookeeper_port, "ZooKeeper", "--zookeeper-port"), *pages)

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
        return [*argv, "--trace-dir", str(self.trace_dir), *self._metrics_arguments([f"controller-{controller_id}"])]

    def broker_arguments(self, group: Sequence[BrokerPlan]) -> list[str]:
        """The same for a process of brokers."""
        argv = ["broker_sim", "run", "--broker-id", ",".join(str(broker.broker_id) for broker in group)]
        argv += ["--listener", ",".join(f"{HOST}:{broker.port}" for broker in group)]
        argv += ["--log-dirs", ",".join(map(str, self.log_dirs("{id}")))]
        argv += ["--trace-dir", str(self.trace_dir)]
        argv += ["--fault-file", str(self.fault_file)]
        argv += ["--rack", ",".join(str(broker.rack) for broker in group)] if group[0].rack is not None else []
        return argv + self._metrics_arguments([f"broker-{broker.broker_id}" for broker in group])

    @property
    def metrics(self) -> dict[str, str]:
        """Where each program serves its metrics: brokers first, then controllers. Empty without a port."""
        if self.metrics_port is None:
            return {}
        names = [f"broker-{b.broker_id}" for b in self.brokers] + [f"controller-{n}" for n in self.controller_ids]
        return {name: f"{HOST}:{self.metrics_port + n}" for n, name in enumerate(names)}

    def _metrics_arguments(self, names: Sequence[str]) -> list[str]:
        return ["--metrics-listener", ",".join(self.metrics[name] for name in names)] if self.metrics else []

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
    metrics_port: int | None = None,
    ids: Sequence[int] = (),
) -> ClusterPlan:
    """Brokers 1, 2, ..., or with these `ids`, with the racks in turn and the given ports; controllers 901, 902, ..., or
    from the first id on that no broker has."""
    ids = ids or range(1, brokers + 1)
    first_controller = max(FIRST_CONTROLLER_ID, max(ids) + 1)
    return ClusterPlan(
        data=data.resolve(),
        brokers=tuple(
            BrokerPlan(broker_id=broker_id, port=ports[index], rack=racks[index % len(racks)] if racks else None)
            for index, broker_id in enumerate(ids)
        ),
        controller_ids=tuple(first_controller + index for index in range(controllers)),
        zookeeper_port=zookeeper_port,
        settings=tuple(settings),
        broker_processes=broker_processes,
        log_dir_count=log_dir_count,
        log_level=log_level,
        metrics_port=metrics_port,
    )  # fmt: skip
