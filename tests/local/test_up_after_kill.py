"""`kwob up` comes up on its folder whatever was killed before."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from controller import cli
from controller.local.cluster_file import is_running, read_cluster

pytestmark = pytest.mark.zk


def kwob(data: Path, *words: str) -> str:
    """What a command prints, on both streams. It runs here: a process of its own takes most of a second to start."""
    said = io.StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        cli.main([*words, "--data", str(data)])
    return said.getvalue()


def active(data: Path) -> int | None:
    """Who is in office, by `kwob status`."""
    rows = json.loads(kwob(data, "status", "--json"))
    return next((row["id"] for row in rows["controllers"] if row["active"]), None)


def test_it_comes_up_at_once_after_it_was_killed(start_up: Callable[..., Any], tmp_path: Path) -> None:
    """Its brokers' sessions of 18 s still live then, and the controller's."""
    up = start_up(tmp_path / "data")
    up.wait_for("ready;")
    zookeeper = up.pid_of("zookeeper")
    up.kill()
    began = time.monotonic()
    up = start_up(tmp_path / "data")
    line = up.wait_for("the last run did not end in order")
    assert all(path in line for path in ("/brokers/ids/1", "/brokers/ids/2", "/controller"))
    up.wait_for("ready;")
    assert time.monotonic() - began < 17, "it waited for the sessions"
    assert not is_running(zookeeper)
    row = read_cluster(tmp_path / "data")
    assert all(pid is not None for pid in [*(b.pid for b in row.brokers), *(c.pid for c in row.controllers)])
    assert up.interrupt() == 0
    assert not any("not whole" in line for line in up.said)


def test_it_ends_what_a_killed_one_left_running(start_up: Callable[..., Any], tmp_path: Path) -> None:
    """Where the kernel does not end children with their parent, they hold the ports and the folders."""
    data = tmp_path / "data"
    data.mkdir()
    (data / "kwob.lock").touch()
    holds_a_port = "import socket, sys, time; s = socket.create_server(('127.0.0.1', 0)); time.sleep(600)"
    words = [sys.executable, "-c", holds_a_port]
    orphan = subprocess.Popen([*words, str(data / "traces")], start_new_session=True)
    foreign = subprocess.Popen([*words, "elsewhere"], start_new_session=True)
    try:
        (data / "processes.json").write_text(f'{{"broker-1": [{orphan.pid}], "broker-2": [{foreign.pid}]}}')
        up = start_up(data, "--brokers", "1")
        assert f"broker-1 (process {orphan.pid})" in up.wait_for("was killed; ended what it left")
        assert orphan.wait(10) == -signal.SIGKILL
        assert foreign.poll() is None, "an id that is used again by another program"
    finally:
        for process in (orphan, foreign):
            process.kill()
            process.wait()
    assert up.interrupt() == 0


def test_zookeepers_death_is_told_and_mended(start_up: Callable[..., Any], tmp_path: Path) -> None:
    up = start_up(tmp_path / "data")
    up.wait_for("ready;")
    os.killpg(up.pid_of("zookeeper"), signal.SIGKILL)
    up.wait_for("ZooKeeper ended; starting it again")
    up.wait_for("ZooKeeper runs again")
    row = read_cluster(tmp_path / "data")
    assert all(pid is not None for pid in [*(b.pid for b in row.brokers), *(c.pid for c in row.controllers)])
    assert up.interrupt() == 0


def test_what_was_killed_is_told_and_started_by_hand(start_up: Callable[..., Any], tmp_path: Path) -> None:
    """A controller; and a broker, by the command that the line about it names, also when a fault has it down."""
    data = tmp_path / "data"
    up = start_up(data, "--controllers", "2", "--override", "zookeeper.session.timeout.ms=2000", "--log-dirs", "2")
    up.wait_for("ready;")
    assert kwob(data, "controller", "kill", "901") == "controller 901 killed\n"
    up.wait_for("controller-901 ended; to start it again: kwob controller start 901")
    assert "controller-901 does not run" in kwob(data, "controller", "stop", "901")
    assert "there are 901, 902" in kwob(data, "controller", "stop", "7")
    assert kwob(data, "controller", "start", "901") == "controller 901 started\n"
    kwob(data, "fault", "kill", "--broker", "2")
    up.wait_for("broker 2 is down by the fault f1")
    assert kwob(data, "broker", "start", "2") == "broker 2 started\n"
    assert kwob(data, "fault", "list") == "no fault is in force\n"
    assert "problem" not in kwob(data, "status")
    assert (data / "broker-1" / "data-2" / "meta.properties").exists()


@pytest.mark.long
def test_topics_are_created_while_the_active_controller_is_killed(start_up: Callable[..., Any], tmp_path: Path) -> None:
    """By an unmodified client, which knows brokers alone: they find the next controller within its time-out."""
    data = tmp_path / "data"
    up = start_up(data, "--controllers", "2", "--override", "zookeeper.session.timeout.ms=2000")
    up.wait_for("ready;")
    row = read_cluster(data)
    admin = AdminClient({"bootstrap.servers": row.bootstrap, "log_level": 0})
    before, enough = active(data), threading.Event()
    made: list[str] = []
    twice: list[str] = []
    refused: dict[str, str] = {}

    def create() -> None:
        while not enough.is_set() and not refused:
            name = f"t{len(made)}"
            (outcome,) = admin.create_topics([NewTopic(name, 1, 2)], request_timeout=40).values()
            try:
                outcome.result(50)
            except KafkaException as error:
                # The killed one may have made it before it could say so; then it is asked for a second time.
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS or twice:
                    refused[name] = str(error)
                twice.append(name)
            made.append(name)

    def until(holds: Callable[[], bool]) -> None:
        limit = time.monotonic() + 60
        while not holds():
            assert time.monotonic() < limit and not refused, refused
            creating.join(0.02)

    creating = threading.Thread(target=create)
    creating.start()
    try:
        until(lambda: len(made) >= 3)
        assert kwob(data, "controller", "kill", "active") == f"controller {before} killed\n"
        until(lambda: active(data) not in (before, None))
        then = len(made)
        until(lambda: len(made) >= then + 3)
    finally:
        enough.set()
        creating.join(60)
    assert refused == {}
    until(
        lambda: set(made) <= set(admin.list_topics(timeout=10).topics)
    )  # the last one is told to each broker by itself
    found = admin.list_topics(timeout=10)
    assert set(found.brokers) == {1, 2}, "no client sees a controller"
    assert all(set(found.topics[name].partitions[0].replicas) == {1, 2} for name in made)
    assert up.interrupt() == 0
