"""The pytest plugin that comes with kwob: fixtures that are a Kafka cluster, and its last events where a test fails.

    def test_my_service(kafka_cluster):
        kafka_cluster.create_topic("orders", partitions=3)
        ...  # connect to kafka_cluster.bootstrap_servers
        kafka_cluster.kill_broker(kafka_cluster.leader("orders"))

`@pytest.mark.kafka_cluster(brokers=5, racks=["a", "b"], settings={...})` says which; see docs/test-your-service.md.
Nothing heavy is imported before a test asks for a cluster.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from controller.embedded.handles import KafkaCluster

MARKER: Final = "kafka_cluster"
_FIXTURES: Final = ("kafka_cluster", "module_kafka_cluster", "session_kafka_cluster")
#: Events in the report of a test that fails, and those that say nothing there.
_EVENTS: Final = 40
_LEFT_OUT: Final = (
    "controller.event_processed", "setting.ignored", "seed.chosen", "request.sent", "zk.connected",
    "states.initialized",
)  # fmt: skip


#: The clusters that run now, by the name of their fixture.
_RUNNING: Final = pytest.StashKey[dict[str, "KafkaCluster"]]()


def pytest_configure(config: pytest.Config) -> None:
    """Makes the marker known."""
    config.addinivalue_line(
        "markers",
        f"{MARKER}(brokers=3, controllers=1, racks=(), settings=None, log_dirs=1, mode='embedded', like=None, scale=0, "
        "metrics=False, seed=None): "
        "the cluster of the fixture kafka_cluster, or of its module or session variant",
    )


@pytest.fixture(scope="session")
def kafka_cluster_options() -> Mapping[str, Any]:
    """Overrule it for what all clusters have in common; the marker of a test or a module goes before."""
    return {}


@pytest.fixture
def kafka_cluster(request: pytest.FixtureRequest, kafka_cluster_options: Mapping[str, Any]) -> Iterator[KafkaCluster]:
    """A cluster for one test."""
    yield from _cluster(request, kafka_cluster_options)


@pytest.fixture(scope="module")
def module_kafka_cluster(
    request: pytest.FixtureRequest, kafka_cluster_options: Mapping[str, Any]
) -> Iterator[KafkaCluster]:
    """A cluster for all tests of a module; `pytestmark` says which."""
    yield from _cluster(request, kafka_cluster_options)


@pytest.fixture(scope="session")
def session_kafka_cluster(
    request: pytest.FixtureRequest, kafka_cluster_options: Mapping[str, Any]
) -> Iterator[KafkaCluster]:
    """A cluster for the whole run (of each worker of pytest-xdist); `kafka_cluster_options` says which."""
    yield from _cluster(request, kafka_cluster_options)


def _cluster(request: pytest.FixtureRequest, common: Mapping[str, Any]) -> Iterator[KafkaCluster]:
    from controller.embedded.handles import KafkaCluster
    from controller.local.cluster_file import ClusterError

    marker = request.node.get_closest_marker(MARKER)
    if marker is not None and marker.args:
        pytest.fail(f"the marker {MARKER} takes names only, such as brokers=5", pytrace=False)
    refusal = None
    try:
        cluster = KafkaCluster(**{**common, **(marker.kwargs if marker is not None else {})}).start()
    except (TypeError, ValueError, ClusterError) as error:
        refusal = str(error).removeprefix("KafkaCluster.__init__() got an ")
    if refusal is not None:  # outside of the handler: else the report tells it twice
        pytest.fail(f"{request.fixturename} cannot be what the marker {MARKER} says: {refusal}", pytrace=False)
    running = request.config.stash.setdefault(_RUNNING, {})
    running[str(request.fixturename)] = cluster
    try:
        yield cluster
    finally:
        del running[str(request.fixturename)]
        cluster.stop()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Refuses a marker on a test whose cluster is that of a module or a run: it would go unheard."""
    used = [name for name in _FIXTURES if name in getattr(item, "fixturenames", ())]
    places = [node for node, _ in item.iter_markers_with_node(MARKER)]
    if (
        used
        and _FIXTURES[0] not in used
        and any(isinstance(place, (pytest.Function, pytest.Class)) for place in places)
    ):
        pytest.fail(
            f"the marker {MARKER} on a test is for the fixture {_FIXTURES[0]}; {used[0]} takes it from "
            + ("pytestmark of the module" if used[0] == _FIXTURES[1] else "the fixture kafka_cluster_options"),
            pytrace=False,
        )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Puts the last events of the cluster into the report of a test that fails."""
    report = yield
    if report.failed and call.when != "teardown":
        for name, cluster in item.config.stash.get(_RUNNING, {}).items():
            if name in getattr(item, "fixturenames", ()):
                report.sections.append((f"last events of {name}", _last_events(cluster)))
    return report


def _last_events(cluster: KafkaCluster) -> str:
    try:
        events = list(cluster.events())
    except RuntimeError as error:
        return str(error)
    return "\n".join(report_lines(events))


def report_lines(events: Sequence[Mapping[str, Any]]) -> list[str]:
    """The last events, oldest first. What is told again and again, as by who tries again, is one line: the last of
    them, with how often and since when, so that it leaves room for what happened before."""
    from controller.local.logs_command import line

    width = len("controller-901")
    lines: dict[str, tuple[str, str, int]] = {}  # without the time -> the first time, the whole line, how often
    for event in events:
        if event.get("event") not in _LEFT_OUT:
            text = line({**event, "process": _program(event)}, width)
            when, _, what = text.partition(" ")
            since, _, times = lines.pop(what, (when, "", 0))
            lines[what] = (since, text, times + 1)
    last = list(lines.values())[-_EVENTS:]
    return [text if times == 1 else f"{text} ({times} times since {since})" for since, text, times in last]


def _program(event: Mapping[str, Any]) -> str:
    """Who tells an event: the controller that it names, else the broker."""
    if "process" in event:
        return str(event["process"])
    return next(
        (
            f"{role}-{event[key]}"
            for role, key in (("controller", "controller"), ("broker", "broker_id"))
            if key in event
        ),
        "",
    )
