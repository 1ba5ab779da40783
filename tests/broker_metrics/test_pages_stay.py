"""A program that starts again serves its page where it did."""

from __future__ import annotations

import threading
import time

from controller.embedded.handles import KafkaCluster


def test_the_pages_of_a_broker_and_a_controller_stay_where_they_were() -> None:
    with KafkaCluster(brokers=2, metrics=True) as cluster:
        before = dict(cluster.metrics)
        assert set(before) == {"broker-1", "broker-2", "controller-901"}
        cluster.stop_broker(2)
        cluster.kill_controller(901)
        cluster.start_broker(2)
        cluster.start_controller(901)
        cluster.create_topic("again", partitions=2, replication_factor=2)
        limit = time.monotonic() + 30
        while len(cluster.metrics) < len(before) and time.monotonic() < limit:
            threading.Event().wait(0.05)  # a broker serves its page last
        assert dict(cluster.metrics) == before
