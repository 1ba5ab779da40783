"""`kwob wait` and `kwob check` against a cluster: what holds, what does not, and what each says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controller.embedded.handles import KafkaCluster
from controller.local import check


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    with KafkaCluster() as started:
        yield started


def checked(cluster: KafkaCluster, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, Any]:
    capsys.readouterr()
    code = check.check_main(["--bootstrap-server", cluster.bootstrap_servers, "--json", "--timeout", "9s", *more])
    return code, {row["statement"]: row["holds"] for row in json.loads(capsys.readouterr().out)["statements"]}


def waited(cluster: KafkaCluster, *argv: str) -> int:
    return check.wait_main(["--bootstrap-server", cluster.bootstrap_servers, *argv])


def test_a_cluster_that_is_as_it_should_be(cluster: KafkaCluster, capsys: pytest.CaptureFixture[str]) -> None:
    code, held = checked(cluster, capsys)
    assert code == 0 and len(held) == 5 and all(held.values()), "also without a topic"
    cluster.create_topic("whole", partitions=2)
    assert checked(cluster, capsys, "--topic", "whole")[0] == 0
    assert waited(cluster, "--until", "full-isr,leader,no-moves") == 0


def test_a_topic_that_there_is_not(cluster: KafkaCluster, capsys: pytest.CaptureFixture[str]) -> None:
    code, held = checked(cluster, capsys, "--topic", "nosuch", "--timeout", "0")
    assert code == 1 and list(held.values()).count(False) == 1
    assert waited(cluster, "--until", "leader", "--topic", "nosuch", "--timeout", "100ms") == 1
    assert "knows no topic nosuch" in capsys.readouterr().err


@pytest.mark.long
def test_a_broker_that_is_gone_is_missed(cluster: KafkaCluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.create_topic("short", replicas={0: [1, 2, 3]})
    cluster.kill_broker(3)
    cluster.wait_for_leader()
    assert waited(cluster, "--until", "leader") == 0
    assert waited(cluster, "--until", "full-isr", "--timeout", "200ms") == 1
    assert "short-0" in capsys.readouterr().err
    code, held = checked(cluster, capsys, "--timeout", "0")
    assert code == 1 and held["every partition has a leader in its ISR and a full ISR"] is False
    cluster.heal()
    assert waited(cluster, "--until", "full-isr") == 0


def test_without_a_controller_it_says_so(cluster: KafkaCluster, capsys: pytest.CaptureFixture[str]) -> None:
    controller = cluster.kill_controller()
    code, held = checked(cluster, capsys, "--timeout", "0")
    assert code == 1 and held["a controller is active"] is False
    cluster.start_controller(controller)
    assert checked(cluster, capsys)[0] == 0


def test_wrong_words_and_nobody_to_ask(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check.wait_main(["--until", "whole", "--data", str(tmp_path)]) == 2
    assert "there are leader, full-isr, no-moves" in capsys.readouterr().err
    assert check.check_main(["--data", str(tmp_path)]) == 1
    assert "kwob up" in capsys.readouterr().err
