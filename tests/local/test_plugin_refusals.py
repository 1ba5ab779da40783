"""What a user of the plugin gets wrong: each is one clear line, and no cluster that is not what was asked for."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from controller.embedded.handles import KafkaCluster
from controller.local.cluster_file import ClusterError
from tests.local.test_recipes import pytest_run

SHAPES: Final = [
    ({"brokers": 0}, "brokers is 0; a whole number from 1 on is expected"),
    ({"brokers": "three"}, "brokers is 'three'; a whole number"),
    ({"brokers": 2.5}, "brokers is 2.5; a whole number"),
    ({"brokers": True}, "brokers is True; a whole number"),
    ({"controllers": 0}, "controllers is 0; a whole number"),
    ({"log_dirs": 0}, "log_dirs is 0; a whole number"),
    ({"racks": "abc"}, "racks is 'abc'; a list of names is expected"),
    ({"racks": [1, 2]}, r"racks is \[1, 2\]; a list of names is expected"),
    ({"racks": {"a": 1}}, r"racks is {'a': 1}; a list of names is expected"),
    ({"racks": 5}, "racks is 5; a list of names is expected"),
    ({"racks": iter(["a"])}, "racks is <list_iterator .*; a list of names is expected"),
    ({"mode": "process"}, "mode is 'process'; there are embedded and processes"),
    ({"settings": ["min.insync.replicas=2"]}, "names and values are expected"),
    ({"settings": {"log.dirs": "/x"}}, "log.dirs is not for settings here: log_dirs=N"),
    ({"settings": {"zookeeper.connect": "h:1"}}, "zookeeper.connect is not for settings here"),
    ({"settings": {"broker.rack": "a"}}, r"broker.rack is not for settings here: racks=\[...\] gives them"),
    ({"scale": "1/10"}, "scale is for like="),
    ({"like": "shape.yaml", "scale": "much"}, "scale is 'much'; a share from 0 to 1"),
    ({"like": "shape.yaml", "scale": "1/0"}, "scale is '1/0'; a share from 0 to 1"),
    ({"like": "shape.yaml", "brokers": 3}, "brokers is not for like=: the file says it"),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "refusal"), SHAPES, ids=[refusal for _, refusal in SHAPES])
def test_a_cluster_that_cannot_be_is_refused_before_anything_is_made(
    shape: dict[str, Any], refusal: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    with pytest.raises(ValueError, match=refusal):
        KafkaCluster(**shape)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    with KafkaCluster(brokers=2, settings={"min.insync.replicas": 1, "auto.create.topics.enable": False}) as started:
        started.create_topic("there", partitions=2, configs={"min.insync.replicas": 1})
        yield started


CALLS: Final[list[tuple[str, Callable[[KafkaCluster], object], str]]] = [
    ("isr of no topic", lambda c: c.isr("nosuch"), "there is no partition nosuch-0"),
    ("leader of no partition", lambda c: c.leader("there", 7), "there has no partition 7; it has 0 to 1"),
    ("start", lambda c: c.start_broker(1), "broker 1 is not down"),
    ("slow link's peer", lambda c: c.slow_link(1, 9, delay_ms=5), "no broker 9 in this cluster"),
    ("kill a controller", lambda c: c.kill_controller(9), "there is no controller 9; there are 901"),
    ("start a controller", lambda c: c.start_controller(1), "there is no controller 1; there are 901"),
    ("log directory", lambda c: c.fail_log_dir(1, 5), "broker 1 has no log directory 5; it has 1 to 1"),
    ("heal", lambda c: c.heal("f99"), "no fault was called 'f99'; there are none"),
    ("api", lambda c: c.api_error("Prodce", "NOT_LEADER_OR_FOLLOWER"), "no API is called 'Prodce'; there are "),
    ("error", lambda c: c.api_error("Produce", "NOT_LEADER"), "no error is called 'NOT_LEADER'; there are "),
    ("kind", lambda c: c.fault(fault="slow_lnk", broker=1), "'slow_lnk' does not exist; there are pause_replication"),
    ("replicas on nobody", lambda c: c.create_topic("t", replicas={0: [9]}), "there is no broker 9; there are 1, 2"),
    ("replicas and numbers", lambda c: c.create_topic("t", partitions=3, replicas={0: [1]}), "leave the numbers out"),
    ("reassign to nobody", lambda c: c.reassign("there", {0: [9]}), "there is no broker 9; there are 1, 2"),
]  # fmt: skip


ONE_BROKER: Final[dict[str, Callable[[KafkaCluster, Any], object]]] = {
    "kill": lambda c, broker: c.kill_broker(broker),
    "stop": lambda c, broker: c.stop_broker(broker),
    "start": lambda c, broker: c.start_broker(broker),
    "pause": lambda c, broker: c.pause_replication(broker),
    "slow link": lambda c, broker: c.slow_link(broker, delay_ms=5),
    "cut link": lambda c, broker: c.cut_link(broker),
    "log directory": lambda c, broker: c.fail_log_dir(broker),
    "session": lambda c, broker: c.expire_session(broker),
}


@pytest.mark.parametrize("broker", [9, 0, None, "1", ""])
@pytest.mark.parametrize("call", ONE_BROKER.values(), ids=ONE_BROKER)
def test_a_fault_of_one_broker_is_never_one_of_all(
    cluster: KafkaCluster, call: Callable[[KafkaCluster, Any], object], broker: object
) -> None:
    with pytest.raises(ValueError, match=re.escape(f"there is no broker {broker!r}; there are 1, 2")):
        call(cluster, broker)
    assert cluster.leader("there") in (1, 2), "nothing was put in force"


@pytest.mark.parametrize(("call", "refusal"), [row[1:] for row in CALLS], ids=[row[0] for row in CALLS])
def test_a_handle_refuses_what_there_is_not(
    cluster: KafkaCluster, call: Callable[[KafkaCluster], object], refusal: str
) -> None:
    with pytest.raises((ValueError, KeyError), match=re.escape(refusal)) as refused:
        call(cluster)
    assert refused.value.__suppress_context__ or refused.value.__cause__ is None
    assert cluster.leader("there") in (1, 2), "nothing is broken"


@pytest.mark.parametrize("down", [{"broker": 1}, {"rack": "a"}], ids=str)
def test_who_is_about_to_end_is_not_waited_for_as_a_leader(down: dict[str, Any]) -> None:
    """Without a controller nobody takes over; with one it is a race that the wait must not lose."""
    with KafkaCluster(brokers=2, racks=["a", "b"]) as cluster:
        cluster.create_topic("t", replicas={0: [1, 2]})
        cluster.kill_controller()
        cluster.fault(fault="kill", from_ms=9_999_999_999_999, broker=1)
        cluster.wait_for_leader("t")
        cluster.fault(fault="stop", **down)
        with pytest.raises(TimeoutError, match="t-0 is led by a broker that is about to end, says broker 1"):
            cluster.wait_for_leader("t", timeout_s=0.1)


def test_a_topic_that_nobody_can_make_is_waited_for_as_long_as_said() -> None:
    with KafkaCluster(brokers=1) as cluster:
        cluster.kill_controller()
        with pytest.raises(TimeoutError, match=r"waited 0.3 s for topic t: no answer; is a controller up\?"):
            cluster.create_topic("t", timeout_s=0.3)


def test_the_data_of_another_embedded_cluster_are_refused_in_words(tmp_path: Path) -> None:
    """Its znodes are gone, or in the memory of the one that runs, which goes on. The folder may be given as a text."""
    folder = str(tmp_path / "data")
    refusal = re.escape(
        f"{folder} has data of another embedded cluster, whose ZooKeeper is in memory: nobody can go on"
    )
    with KafkaCluster(brokers=1, folder=folder) as first:
        with pytest.raises(ClusterError, match=refusal):
            KafkaCluster(brokers=1, folder=folder).start()
        first.create_topic("t", replication_factor=1)
        assert first.folder == Path(folder) and first.leader("t") == 1
    with pytest.raises(ClusterError, match=refusal):
        first.start()
    first.stop()
    assert (Path(folder) / "broker-1").is_dir()


def test_a_heal_that_is_refused_ends_nothing(cluster: KafkaCluster) -> None:
    """Whichever of its names is the wrong one."""
    one, two = cluster.pause_replication(1), cluster.slow_link(2, delay_ms=1)

    def ended() -> set[object]:
        cluster.heal(cluster.slow_link(1, delay_ms=1))  # by which all that are wanted are put in force again
        return {event["id"] for event in cluster.events() if event["event"] == "fault.ended"} & {one, two}

    for names in ((one, "nosuch"), ("nosuch", one), (one, two, "nosuch")):
        with pytest.raises(ValueError, match="no fault was called 'nosuch'"):
            cluster.heal(*names)
        assert ended() == set()
    cluster.heal(one)
    assert ended() == {one}
    cluster.heal()


USER: Final = """
import pytest

@pytest.mark.kafka_cluster(brokers=0)
def test_shape(kafka_cluster): pass

@pytest.mark.kafka_cluster(settings={"min.insync.replica": "2"})
def test_setting(kafka_cluster): pass

@pytest.mark.kafka_cluster(like="nosuch.yaml")
def test_file(kafka_cluster): pass

@pytest.mark.kafka_cluster(5)
def test_number(kafka_cluster): pass

@pytest.mark.kafka_cluster(brokers=5)
def test_of_a_module(module_kafka_cluster): pass

@pytest.mark.kafka_cluster(brokers=5)
def test_of_a_run(session_kafka_cluster): pass
"""


def test_a_marker_that_cannot_be_is_one_line_of_the_report(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(USER)
    ran = pytest_run(tmp_path, "-q", "-rN")  # no summary: where CI is set, it says each again
    told = "kafka_cluster cannot be what the marker kafka_cluster says: "
    for line in (
        f"{told}brokers is 0; a whole number from 1 on is expected",
        f"{told}unknown setting min.insync.replica (value '2'): did you mean min.insync.replicas",
        f"{told}nosuch.yaml cannot be read: No such file or directory",
        "the marker kafka_cluster takes names only, such as brokers=5",
        "is for the fixture kafka_cluster; module_kafka_cluster takes it from pytestmark of the module",
        "is for the fixture kafka_cluster; session_kafka_cluster takes it from the fixture kafka_cluster_options",
    ):
        assert ran.stdout.count(line) == 1, f"{line}\n{ran.stdout}"
    assert "6 errors" in ran.stdout and "During handling" not in ran.stdout


#: A service that does not come up, while the cluster has events that say nothing of why.
SERVICE: Final = """
import pytest

@pytest.fixture
def service(kafka_cluster):
    kafka_cluster.create_topic("orders")
    last, quiet = kafka_cluster.events(), [{"event": name} for name in QUIET]
    first = [event for n in range(40) for event in ({"event": "it.began", "number": n}, *quiet)]
    kafka_cluster.events = lambda: [*first, *last, *10 * quiet]
    raise RuntimeError("no service")

def test_it(service): pass
"""
QUIET: Final = (
    *("controller.event_processed", "setting.ignored", "seed.chosen", "request.sent", "zk.connected"),
    "states.initialized",
)


def test_the_last_events_that_say_something_are_told_where_a_fixture_of_the_user_fails(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(f"QUIET = {QUIET}\n{SERVICE}")
    ran = pytest_run(tmp_path, "-q", "-rN")
    events = ran.stdout.partition("last events of kafka_cluster -")[2].splitlines()[1:-1]
    assert "no service" in ran.stdout and len(events) == 40
    assert any("controller-901 partition.leader_elected orders-0" in line for line in events)
    numbers = [int(line.partition("it.began number=")[2]) for line in events if "it.began" in line]
    assert 0 < len(numbers) < 40 and numbers == [*range(40 - len(numbers), 40)]
    assert not any(name in line for name in QUIET for line in events)
