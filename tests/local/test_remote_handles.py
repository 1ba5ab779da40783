"""`kwob test-cluster` as KwobContainer uses it, without a container: each handle over its port; what is refused."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from controller.embedded.backends import LoopThread
from controller.embedded.calls import Handles
from controller.embedded.cluster import EmbeddedPlan, program_names
from controller.embedded.remote import Elsewhere, Place, RemoteError
from controller.world.real.ports import free_ports
from tests.handles import CHECKS, SHAPE, until

TOKEN = "a-token"
PROGRAM = [sys.executable, "-m", "controller.cli", "test-cluster", "--host", "127.0.0.1", "--port", "0"]


class Program:
    """The program, in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.process = subprocess.Popen(
            [*PROGRAM, "--data", str(folder)],
            env={**os.environ, "KWOB_TOKEN": TOKEN},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        found = re.fullmatch(r"handles at 127.0.0.1:(\d+)\n", self.process.stdout.readline())
        assert found is not None
        self.port = int(found[1])

    def ask(self, line: bytes) -> Any:
        with socket.create_connection(("127.0.0.1", self.port), timeout=20) as connection:
            connection.sendall(line)
            return json.loads(connection.makefile("rb").read())

    def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(30)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


class Remote(Handles):
    """What KwobContainer is when its container runs."""

    def __init__(self, program: Program, plan: EmbeddedPlan) -> None:
        self._has_shape(plan)
        count = len(self.broker_ids)
        free = free_ports(2 * count)
        ports = dict(zip(self.broker_ids, free[:count], strict=True))
        self.network = [("localhost", port) for port in free[count:]]
        names = program_names(plan)
        pages = dict(zip(names, free_ports(len(names)), strict=True))
        place = Place(
            host="127.0.0.1",
            port=program.port,
            token=TOKEN,
            bootstrap=",".join(f"127.0.0.1:{port}" for port in ports.values()),
            pages={names[i]: f"127.0.0.1:{port}" for i, port in pages.items()},
        )
        published = {
            i: {"EXTERNAL": ("127.0.0.1", port, port), "NETWORK": (*there, there[1])}
            for (i, port), there in zip(ports.items(), self.network, strict=True)
        }
        self._loop = LoopThread("remote")
        self._backend = Elsewhere(place, replace(plan, published=published, page_ports=pages))
        self._run(self._backend.start())

    def close(self) -> None:
        assert self._loop is not None
        self._loop.close()


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    started = Program(tmp_path_factory.mktemp("data") / "cluster")
    yield started
    if started.process.poll() is None:
        started.end()


@pytest.fixture(scope="module")
def cluster(program: Program) -> Iterator[Remote]:
    remote = Remote(program, EmbeddedPlan(folder=Path("there"), **SHAPE))
    yield remote
    remote.close()


@pytest.mark.long
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_handle_does_what_its_name_says_from_elsewhere(cluster: Remote, check: Callable[[Any], None]) -> None:
    check(cluster)
    cluster.heal()


def test_who_asks_in_its_network_is_told_addresses_there(cluster: Remote) -> None:
    for host, port in cluster.network:
        told = AdminClient({"bootstrap.servers": f"{host}:{port}"}).list_topics(timeout=10).brokers
        assert [(told[i].host, told[i].port) for i in cluster.broker_ids] == cluster.network
    here = AdminClient({"bootstrap.servers": cluster.bootstrap_servers}).list_topics(timeout=10).brokers
    assert {here[i].host for i in cluster.broker_ids} == {"127.0.0.1"}


def test_each_program_serves_a_page_as_long_as_it_runs(cluster: Remote) -> None:
    assert set(cluster.metrics) == {"broker-1", "broker-2", "broker-3", "controller-901", "controller-902"}
    for address in cluster.metrics.values():
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
            assert b"\nkafka_" in answer.read()
    cluster.kill_broker(2)
    until("its page ends with it", lambda: "broker-2" not in cluster.metrics)
    cluster.start_broker(2)
    until("it is there again", lambda: "broker-2" in cluster.metrics)
    cluster.wait_for_full_isr()


ASKED = [
    ("a line that is no JSON", b"{\n", "no request that is understood"),
    ("no token", b'{"do": "events"}\n', "no request that is understood"),
    ("a wrong token", b'{"token": "x", "do": "events"}\n', "the token is wrong"),
    ("nothing that there is", b'{"token": "a-token", "do": "stop"}\n', "no request that is understood"),
    ("a field too many", b'{"token": "a-token", "do": "events", "x": 1}\n', "unexpected keyword argument 'x'"),
    ("a row that is no fault", b'{"token": "a-token", "do": "set_faults", "rows": [{}]}\n', "fault"),
    ("a second start", b'{"token": "a-token", "do": "start"}\n', "the cluster runs already"),
]


@pytest.mark.parametrize(("line", "wanted"), [row[1:] for row in ASKED], ids=[row[0] for row in ASKED])
def test_what_cannot_be_meant_is_refused_and_the_cluster_goes_on(
    program: Program, cluster: Remote, line: bytes, wanted: str
) -> None:
    assert wanted in program.ask(line)["error"]
    assert cluster.isr_history() is not None and cluster.events(), "it answers whoever has the token"


def test_it_begins_with_nothing_refuses_a_wrong_setting_and_ends_in_order(tmp_path: Path) -> None:
    program = Program(tmp_path / "cluster")
    try:
        assert "was not started" in program.ask(b'{"token": "a-token", "do": "events"}\n')["error"]
        plan = EmbeddedPlan(folder=Path("there"), brokers=1, settings={"min.insync.replica": "2"})
        with pytest.raises(RemoteError, match=r"min\.insync\.replica"):
            Remote(program, plan)
    finally:
        assert program.end() == 0


def test_without_a_token_it_does_not_begin(tmp_path: Path) -> None:
    clean = {name: value for name, value in os.environ.items() if name != "KWOB_TOKEN"}
    ran = subprocess.run(PROGRAM, env=clean, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 2
    assert "KWOB_TOKEN is not set" in ran.stderr
