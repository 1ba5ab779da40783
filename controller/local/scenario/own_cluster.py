"""What a scenario says of a cluster of its own, which can be judged before that runs: who is there, in which rack."""

from __future__ import annotations

from controller.local.cluster_file import BrokerRow
from controller.local.fault_file import check_against
from controller.local.plan import FIRST_CONTROLLER_ID
from controller.local.scenario.file import ACTIVE, ClusterPart, OnBroker, OnController, Scenario
from controller.wire.document_errors import line_of
from controller.wire.fault_rows import FaultError


def check(scenario: Scenario, text: str, name: str) -> None:
    """Raises: FaultError: file, line and who is there, of a step or fault that names nobody of the cluster."""
    if scenario.cluster is None:
        return
    _check_steps(scenario, scenario.cluster, text, name)
    _check_faults(scenario, _brokers(scenario.cluster), text, name)


def _brokers(cluster: ClusterPart) -> list[BrokerRow]:
    """As `kwob up` numbers them and gives them racks."""
    racks = cluster.racks
    return [
        BrokerRow(id=n + 1, pid=None, rack=racks[n % len(racks)] if racks else None, listener="", log_dirs=[])
        for n in range(cluster.brokers)
    ]


def _check_steps(scenario: Scenario, cluster: ClusterPart, text: str, name: str) -> None:
    last = FIRST_CONTROLLER_ID + cluster.controllers - 1
    for number, step in enumerate(scenario.steps):
        where = f"{name}, line {line_of(text, ('steps', number))}: steps {number + 1}"
        if isinstance(step, OnBroker) and not 1 <= step.broker <= cluster.brokers:
            raise FaultError(f"{where}: no broker {step.broker} in this cluster; there are 1 to {cluster.brokers}")
        ids = (ACTIVE, *range(FIRST_CONTROLLER_ID, last + 1))
        if isinstance(step, OnController) and step.controller not in ids:
            there = f"{FIRST_CONTROLLER_ID} to {last}, and `{ACTIVE}`"
            raise FaultError(f"{where}: no controller {step.controller} in this cluster; there are {there}")


def _check_faults(scenario: Scenario, brokers: list[BrokerRow], text: str, name: str) -> None:
    for step in scenario.faults.steps:
        number = int((step.row.id or "").removeprefix("s"))  # as the file's reader numbers them
        anywhere = {"log_dir": None} if hasattr(step.row, "log_dir") else {}  # directories get their names later
        try:
            check_against(step.row.model_copy(update=anywhere), brokers)
        except FaultError as error:
            line = line_of(text, ("faults", number - 1))
            raise FaultError(f"{name}, line {line}, fault {number}: {error}") from error
