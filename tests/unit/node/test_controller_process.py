"""The process: one clear line and an exit code when it cannot start, a clean end on SIGTERM."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from controller.node.config import ignored, load, parse
from controller.rules.configs.settings import SettingError
from controller.wire.zk_operations import Exists, GetData, ZkCode
from controller.world.real.zookeeper import KazooConnector

START_S = 60


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "controller", "run", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=START_S, check=False)


def options(zookeeper: str = "127.0.0.1:1", listener: str = "127.0.0.1:0") -> Sequence[str]:
    return ("--zookeeper", zookeeper, "--controller-id", "5", "--listener", listener)


QUICK = ("--override", "zookeeper.connection.timeout.ms=500")
REFUSED = [
    ("an unknown setting", (*options(), "--override", "num.partition=3"), 1,
     "controller: unknown setting num.partition (value '3'): did you mean num.partitions"),
    ("a value of the wrong type", (*options(), "--override", "num.partitions=x"), 1,
     "controller: setting num.partitions: value 'x' is not allowed; allowed: a whole number"),
    ("a settings file that is not there", (*options(), "--config", "/nonexistent"), 1,
     "controller: settings file /nonexistent: No such file or directory"),
    ("no ZooKeeper", (*options(), *QUICK), 1, "controller: no ZooKeeper server answered at 127.0.0.1:1 within 0.5 s"),
    ("no server named", (*options(zookeeper="/chroot"), *QUICK), 1, "controller: zookeeper.connect '/chroot' names no"),
    ("a port that is none", (*options(zookeeper="localhost:21x1/k"), *QUICK), 1,
     "controller: zookeeper.connect 'localhost:21x1/k' has no address of a server: Port could not be cast"),
    ("a port out of range", (*options(zookeeper="a:2181,b:70000"), *QUICK), 1, "Port out of range 0-65535; "),
    ("another protocol between brokers", (*options(), "--override", "inter.broker.protocol.version=3.9"), 1,
     "controller: setting inter.broker.protocol.version: value '3.9' is not allowed; allowed: 2.6"),
    ("no port", options(listener="localhost"), 2, "'localhost' is no address; allowed: host:port"),
    ("a malformed map", (*options(), "--override", "listener.security.protocol.map=PLAINTEXT"), 2,
     "controller: listener.security.protocol.map 'PLAINTEXT': expected NAME:PROTOCOL"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "code", "message"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED])
def test_it_says_why_it_does_not_start(arguments: Sequence[str], code: int, message: str) -> None:
    ended = run(*arguments)
    assert ended.returncode == code
    assert message in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_port_in_use_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ended = run(*options(listener=f"127.0.0.1:{port}"))
    assert ended.returncode == 1
    assert f"controller: cannot listen on 127.0.0.1:{port}: " in ended.stderr
    assert "in use" in ended.stderr


@contextmanager
def controller(
    zookeeper: str, controller_id: int, *more: str
) -> Iterator[tuple[subprocess.Popen[str], dict[str, object]]]:
    """A running process and its `controller.started` line."""
    arguments = ["--zookeeper", zookeeper, "--controller-id", str(controller_id), "--listener", "127.0.0.1:0", *more]
    process = subprocess.Popen(
        [sys.executable, "-m", "controller", "run", *arguments], stderr=subprocess.PIPE, text=True, env=os.environ
    )
    try:
        assert process.stderr is not None
        for line in process.stderr:
            event = json.loads(line)
            if event["event"] == "controller.started":
                yield process, event
                break
        else:
            raise AssertionError("the process ended before it had started")
    finally:
        process.kill()
        process.wait()
        if process.stderr is not None:
            process.stderr.close()


async def _read(zookeeper: str, path: str) -> tuple[ZkCode, bytes | None]:
    session = await KazooConnector(zookeeper).connect(on_watch=lambda event: None, on_expired=lambda: None)
    (found,) = await session.perform([GetData(path)])
    await session.close()
    return found.code, found.data


async def _wait_for_office(zookeeper: str, controller_id: int) -> None:
    changed = asyncio.Event()
    session = await KazooConnector(zookeeper).connect(on_watch=lambda event: changed.set(), on_expired=lambda: None)
    try:
        async with asyncio.timeout(START_S):
            while True:
                _, found = await session.perform([Exists("/controller", watch=True), GetData("/controller")])
                if json.loads(found.data or b"{}").get("brokerid") == controller_id:
                    return
                await changed.wait()
                changed.clear()
    finally:
        await session.close()


@pytest.mark.zk
def test_it_ends_cleanly_and_another_one_follows(zk_connect: str, tmp_path: Path) -> None:
    with controller(zk_connect, 5, "--trace-dir", str(tmp_path)) as (process, started):
        assert isinstance(started["port"], int)
        assert started["port"] > 0
        asyncio.run(_wait_for_office(zk_connect, 5))
        process.send_signal(signal.SIGTERM)
        assert process.wait(START_S) == 0
        assert (tmp_path / "controller-5.jsonl").exists()
    assert asyncio.run(_read(zk_connect, "/controller"))[0] is ZkCode.NO_NODE
    assert asyncio.run(_read(zk_connect, "/controller_epoch"))[1] == b"1"
    assert asyncio.run(_read(zk_connect, "/config/ips"))[0] is ZkCode.OK
    assert asyncio.run(_read(zk_connect, "/latest_producer_id_block")) == (ZkCode.OK, None)
    with controller(zk_connect, 6):
        asyncio.run(_wait_for_office(zk_connect, 6))
    assert asyncio.run(_read(zk_connect, "/controller_epoch"))[1] == b"2"


def test_a_real_brokers_file_can_be_used(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        "broker.id=3\nlog.dirs=/data\nnum.network.threads=8\nlog.retention.hours=2\ndelete.topic.enable=false\n"
    )
    properties, given = load(file, ["delete.topic.enable=true", "leader.imbalance.check.interval.seconds=7"])
    assert properties.delete_topic_enable
    assert properties.core().leader_imbalance_check_interval_seconds == 7
    assert ignored(given) == ["log.dirs", "num.network.threads"]


@pytest.mark.parametrize(
    ("given", "listener"),
    [
        ({}, "PLAINTEXT"),
        ({"inter.broker.listener.name": "internal"}, "INTERNAL"),
        ({"inter.broker.listener.name": "internal", "control.plane.listener.name": "CONTROLLER"}, "CONTROLLER"),
    ],
)
def test_which_listener_of_brokers_is_used(given: dict[str, str], listener: str) -> None:
    assert parse(given).channels().listener == listener


def test_bad_values_are_refused_with_their_names() -> None:
    with pytest.raises(SettingError, match=r"setting request\.timeout\.ms: value '0'"):
        parse({"request.timeout.ms": "0"})
