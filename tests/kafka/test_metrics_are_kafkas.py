"""The recorded page of metrics is still what a real broker gives through the JMX exporter with its usual rules.

The exporter and its rules come from Maven Central and from the exporter's repository; KWOB_JMX_RULES names the rules
(`examples/kafka-2_0_0.yml` of prometheus/jmx_exporter). Without them the test skips.
"""

from __future__ import annotations

import os
import subprocess
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from tests.broker_metrics.pages import recorded, rows
from tests.kafka.cluster import Cluster, free_port

pytestmark = pytest.mark.kafka
EXPORTER, VERSION = "io.prometheus.jmx:jmx_prometheus_javaagent", "0.20.0"
#: Rows that hang on which requests came, and on ids of brokers.
_BY_CHANCE = ("kafka_network_requestmetrics_errors", "kafka_server_fetcherstats")


@pytest.fixture(scope="module")
def agent() -> str:
    """What JAVA_TOOL_OPTIONS begins with."""
    rules = os.environ.get("KWOB_JMX_RULES", "")
    if not Path(rules).is_file():
        pytest.skip("KWOB_JMX_RULES does not name the exporter's kafka-2_0_0.yml")
    ended = subprocess.run(["mvn", "-q", "dependency:get", f"-Dartifact={EXPORTER}:{VERSION}"], check=False)
    jar = Path.home() / f".m2/repository/io/prometheus/jmx/jmx_prometheus_javaagent/{VERSION}"
    if ended.returncode or not jar.is_dir():
        pytest.skip(f"Maven does not bring {EXPORTER}:{VERSION}")
    return f"-javaagent:{jar}/jmx_prometheus_javaagent-{VERSION}.jar=127.0.0.1:{{port}}:{rules}"


def test_a_real_broker_gives_what_is_recorded(new_cluster: Callable[[], Cluster], agent: str) -> None:
    cluster, port = new_cluster(), free_port()
    node = cluster.real_broker(1, offsets_topic_replication_factor=2)
    node.environment["JAVA_TOOL_OPTIONS"] = agent.format(port=port)
    cluster.real_broker(2, offsets_topic_replication_factor=2)
    cluster.start(1, 2)
    cluster.create("orders", "--partitions", "4", "--replication-factor", "2")
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for number in range(200):
        producer.produce("orders", b"x" * 50, str(number).encode())
    assert producer.flush(20) == 0
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    for _ in range(200):
        assert consumer.poll(20) is not None
    consumer.commit(asynchronous=False)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        found = rows(answer.read().decode())
    consumer.close()
    known = {row for row in recorded() if not row.name.startswith(_BY_CHANCE)}
    assert {row for row in found if not row.name.startswith(_BY_CHANCE)} == known
