"""What a scenario says of a cluster of its own, which can be judged before that runs: its settings and ports, who is
there and in which rack, and which topics it can have."""

from __future__ import annotations

from collections.abc import Iterator

from controller.local.cluster_file import BrokerRow
from controller.local.fault_file import check_against
from controller.local.plan import FIRST_CONTROLLER_ID, OWN_SETTINGS
from controller.local.scenario.file import ACTIVE, ClusterPart, OnBroker, OnController, Scenario, text_of
from controller.rules.configs import settings
from controller.rules.configs.topic import validate
from controller.rules.topic_names import check_topic_name
from controller.wire.document_errors import Place, line_of
from controller.wire.errors import KafkaError
from controller.wire.fault_rows import FaultError


def check(scenario: Scenario, text: str, name: str) -> None:
    """Raises: FaultError: file, line and what is allowed, of what the cluster cannot have and of a step or fault that
    names nobody of it."""
    if scenario.cluster is None:
        return
    for place, message in (*_wrong(scenario.cluster), *_wrong_topics(scenario, scenario.cluster)):
        raise FaultError(f"{name}, line {line_of(text, place)}: {message}")
    _check_steps(scenario, scenario.cluster, text, name)
    _check_faults(scenario, _brokers(scenario.cluster), text, name)


def _wrong(cluster: ClusterPart) -> Iterator[tuple[Place, str]]:
    """What `kwob up` would refuse."""
    for setting, value in cluster.settings.items():
        if setting in OWN_SETTINGS:
            yield ("cluster", "settings", setting), f"cluster {setting} is not for settings: {OWN_SETTINGS[setting]}"
        try:
            settings.check(setting, text_of(value))
        except settings.SettingError as error:
            yield ("cluster", "settings", setting), f"cluster {error}"
    broker = cluster.zookeeper_port - cluster.bootstrap_port + 1
    if 1 <= broker <= cluster.brokers:
        yield ("cluster",), f"cluster: port {cluster.zookeeper_port} is for broker {broker} and ZooKeeper"


def _wrong_topics(scenario: Scenario, cluster: ClusterPart) -> Iterator[tuple[Place, str]]:
    """What `kwob topics --create` would refuse."""
    for number, topic in enumerate(scenario.topics):
        place: Place = ("topics", number)
        if topic.replication_factor > cluster.brokers:
            yield (
                place,
                (
                    f"topics {number + 1} replication_factor: {topic.replication_factor} is more than the cluster has "
                    f"brokers, {cluster.brokers}"
                ),
            )
        try:
            check_topic_name(topic.topic)
            validate({config: text_of(value) for config, value in topic.configs.items()})
        except KafkaError as error:
            yield place, f"topics {number + 1}: {error.message}"


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
