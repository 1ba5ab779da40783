"""The dashboard and the alert rules in a real Prometheus that scrapes a cluster: each panel has data, each alert fires
under its fault, and in calm none does. Needs the command `prometheus` (Debian, Ubuntu: apt install prometheus)."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Producer

from controller.embedded.handles import KafkaCluster
from controller.world.real.ports import free_ports
from tests.broker_metrics.test_monitoring import FOLDER, panels

PROMETHEUS = shutil.which("prometheus")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PROMETHEUS is None, reason="prometheus is not installed"),
]
RULES = yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"][0]["rules"]
#: Rules wait for seconds here, not minutes; what they ask for is the same.
FOR = "2s"
LIMIT_S = 60.0


class Server:
    """One Prometheus on this machine."""

    def __init__(self, folder: Path, cluster: KafkaCluster) -> None:
        self.address = f"127.0.0.1:{free_ports(1)[0]}"
        rules = [{**rule, **({"for": FOR} if "for" in rule else {})} for rule in RULES]
        (folder / "alerts.yml").write_text(yaml.safe_dump({"groups": [{"name": "kafka", "rules": rules}]}))
        targets = list(cluster.metrics.values())
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(folder / "alerts.yml")],
            "scrape_configs": [{"job_name": "kwob", "static_configs": [{"targets": targets}]}],
        }
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        words = [str(PROMETHEUS), f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'db'}"]
        self._log = (folder / "log").open("w")
        self._process = subprocess.Popen(
            [*words, f"--web.listen-address={self.address}"], stdout=self._log, stderr=subprocess.STDOUT
        )

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(30)
        self._log.close()

    def query(self, expression: str) -> list[Any]:
        asked = urllib.parse.urlencode({"query": expression})
        with urllib.request.urlopen(f"http://{self.address}/api/v1/query?{asked}", timeout=10) as answer:
            found: list[Any] = json.load(answer)["data"]["result"]
            return found

    def firing(self) -> set[str]:
        """Names of the alerts that are on."""
        return {row["metric"]["alertname"] for row in self.query('ALERTS{alertstate="firing"}')}

    def until(self, what: str, holds: Callable[[], bool]) -> None:
        """Waits: the other side is a process that tells nobody."""
        limit = time.monotonic() + LIMIT_S
        while True:
            try:
                if holds():
                    return
            except OSError:  # it is still starting
                pass
            assert time.monotonic() < limit, f"not within {LIMIT_S:g} s: {what}; firing: {self.firing()}"
            time.sleep(0.2)


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    settings = {"min.insync.replicas": "2", "replica.lag.time.max.ms": "2000"}
    with KafkaCluster(brokers=3, log_dirs=2, metrics=True, settings=settings) as running:
        running.create_topic("orders", partitions=3, replication_factor=3)
        running.create_topic("pairs", partitions=3, replication_factor=2)
        running.create_topic("lone", partitions=3, replication_factor=1)
        yield running


@pytest.fixture(scope="module")
def server(cluster: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    started = Server(tmp_path_factory.mktemp("prometheus"), cluster)
    try:
        started.until("every target is up", lambda: len(started.query("up == 1")) == len(cluster.metrics))
        yield started
    finally:
        started.stop()


def produce(cluster: KafkaCluster) -> None:
    """To one topic that lacks nothing, to one that is refused, and read back by a group."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "1", "message.timeout.ms": 3000})
    for number in range(30):
        producer.produce("orders", str(number), partition=number % 3)
    producer.flush(10)


def test_each_panel_has_data_and_nothing_fires_in_calm(cluster: KafkaCluster, server: Server) -> None:
    expressions = list(panels())
    assert len(expressions) > 15

    lacking = expressions

    def all_have() -> bool:
        nonlocal lacking
        produce(cluster)
        lacking = [each for each in lacking if not server.query(each)]
        return not lacking

    cluster.api_error("Produce", "NOT_LEADER_OR_FOLLOWER", every=5)
    try:
        server.until("each panel has data", all_have)
    except AssertionError as error:
        raise AssertionError(f"without data: {lacking}") from error
    assert server.firing() == set()


def kill(*broker_ids: int) -> Callable[[KafkaCluster], None]:
    def fault(cluster: KafkaCluster) -> None:
        for broker_id in broker_ids:
            cluster.kill_broker(broker_id)

    return fault


def unclean(cluster: KafkaCluster) -> None:
    """Whoever was not in the ISR comes back alone and leads."""
    cluster.create_topic(
        "risky", partitions=1, replication_factor=2, configs={"unclean.leader.election.enable": "true"}
    )
    leader = cluster.leader("risky")
    (follower,) = cluster.isr("risky") - {leader}
    cluster.kill_broker(follower)
    limit = time.monotonic() + LIMIT_S
    while cluster.isr("risky") != {leader}:
        assert time.monotonic() < limit, "the follower stays in the ISR"
        time.sleep(0.05)
    cluster.kill_broker(leader)
    cluster.start_broker(follower)


def paused(cluster: KafkaCluster) -> None:
    """A follower stands still while its leader gets records; without any it would stay in the ISR, as in Kafka."""
    cluster.pause_replication(3)
    produce(cluster)


#: alert -> the faults under which it fires
FAULTS: dict[str, tuple[Callable[[KafkaCluster], Any], ...]] = {
    "NoActiveController": (lambda cluster: cluster.kill_controller(),),
    "ProcessDown": (kill(1),),
    "OfflinePartitions": (kill(1, 2),),
    "UnderMinIsr": (kill(2),),
    "UnderReplicated": (kill(3), paused),
    "LogDirectoryFailed": (lambda cluster: cluster.fail_log_dir(1),),
    "UncleanElections": (unclean,),
}


def mend(cluster: KafkaCluster, alert: str) -> None:
    """All brokers and the controller run."""
    cluster.heal()
    if alert == "LogDirectoryFailed":  # a broker takes a mended directory in when it starts
        cluster.stop_broker(1)
        cluster.start_broker(1)
    if alert == "NoActiveController":
        cluster.start_controller(901)
    cluster.wait_for_full_isr()


def test_every_alert_has_its_fault() -> None:
    assert set(FAULTS) == {rule["alert"] for rule in RULES}


@pytest.mark.parametrize(("alert", "fault"), [(alert, fault) for alert, each in FAULTS.items() for fault in each])
def test_an_alert_fires_under_its_fault_and_ends_with_it(
    alert: str, fault: Callable[[KafkaCluster], Any], cluster: KafkaCluster, server: Server
) -> None:
    server.until("it is calm", lambda: not server.firing())
    fault(cluster)
    try:
        server.until(f"{alert} fires", lambda: alert in server.firing())
    finally:
        mend(cluster, alert)
    if alert != "UncleanElections":  # which stands for five minutes
        server.until("it ends", lambda: not server.firing())


def test_promtool_takes_the_rules() -> None:
    subprocess.run(["promtool", "check", "rules", str(FOLDER / "alerts.yml")], check=True, capture_output=True)
