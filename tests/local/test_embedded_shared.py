"""An embedded cluster that several threads have, or a process that was forked off the one it runs in."""

from __future__ import annotations

import os
import signal
import socket
import threading

import pytest

from controller.embedded.handles import KafkaCluster


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_process_that_was_forked_off_is_refused_and_ends_nothing() -> None:
    """Its threads are not there: a call would wait for ever. What it leaves in a `with` is the other's."""
    with KafkaCluster(brokers=1) as cluster:
        reading, writing = os.pipe()
        if (child := os.fork()) == 0:
            try:
                cluster.leader("t")
            except RuntimeError as error:
                os.write(writing, str(error).encode())
            cluster.stop()
            os.kill(os.getpid(), signal.SIGKILL)  # nothing of pytest may go on here
        os.close(writing)
        with os.fdopen(reading) as words:
            assert words.read() == f"the cluster runs in process {os.getpid()}, which this one was forked off"
        os.waitpid(child, 0)
        cluster.create_topic("t")
        assert cluster.folder.is_dir()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_process_that_was_forked_off_leaves_the_folder_of_a_cluster_that_has_not_started() -> None:
    cluster = KafkaCluster(brokers=1)
    if (child := os.fork()) == 0:
        cluster.stop()
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    assert cluster.folder.is_dir()
    cluster.stop()
    assert not cluster.folder.exists()


def test_who_stops_a_cluster_that_another_stops_returns_when_it_has_ended() -> None:
    cluster = KafkaCluster(brokers=2).start()
    servers, left = cluster.bootstrap_servers, list[bool]()

    def stop() -> None:
        cluster.stop()
        left.append(cluster.folder.exists() or any(map(is_open, servers.split(","))))

    threads = [threading.Thread(target=stop) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert left == [False] * 3


def is_open(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with socket.socket() as client:
        return client.connect_ex((host, int(port))) == 0
