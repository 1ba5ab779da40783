"""`--compat 2.0 --zookeeper` on a real ZooKeeper: the machine's own connection, with a chroot."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import structlog

from controller.admin.commands import topics
from controller.admin.toolkit.machine import this_machine

pytestmark = pytest.mark.zk


@pytest.fixture(autouse=True)
def logs_as_before() -> Iterator[None]:
    """A tool sets up the logs of its process, which here is that of all tests."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    structlog.reset_defaults()
    root.handlers[:] = handlers
    root.setLevel(level)


def test_topics_by_znode(zk_connect: str, capsys: pytest.CaptureFixture[str]) -> None:
    server = ["--compat", "2.0", "--zookeeper", zk_connect]
    created = topics.main([*server, "--create", "--topic", "t", "--replica-assignment", "0:1,1:0"], this_machine())
    assert (created, capsys.readouterr().out) == (0, 'Created topic "t".\n')
    assert topics.main([*server, "--delete", "--topic", "t"], this_machine()) == 0
    capsys.readouterr()
    assert topics.main([*server, "--describe"], this_machine()) == 0
    assert capsys.readouterr().out.splitlines() == [
        "Topic:t\tPartitionCount:2\tReplicationFactor:2\tConfigs:\tMarkedForDeletion:true",
        "\tTopic: t\tPartition: 0\tLeader: none\tReplicas: 0,1\tIsr: ",
        "\tTopic: t\tPartition: 1\tLeader: none\tReplicas: 1,0\tIsr: ",
    ]


def test_a_server_that_is_no_zookeeper(capsys: pytest.CaptureFixture[str]) -> None:
    assert topics.main(["--compat", "2.0", "--zookeeper", "", "--list"], this_machine()) == 1
    assert "Correct --zookeeper, host:port[/chroot]." in capsys.readouterr().err
