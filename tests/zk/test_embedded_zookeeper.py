"""The embedded server as a process: it says why it does not start, and it never outlives who started it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.wire.zk_operations import Create, GetData, ZkResult, ZkUnreachable
from controller.world.real import embedded_zookeeper
from controller.world.real.embedded_zookeeper import EmbeddedZooKeeper, EmbeddedZooKeeperError
from controller.world.real.java import Java
from controller.world.real.zookeeper import KazooConnector

pytestmark = pytest.mark.zk


def test_a_port_in_use_is_named(zookeeper: EmbeddedZooKeeper, tmp_path: Path) -> None:
    host, _, port = zookeeper.address.partition(":")
    with pytest.raises(EmbeddedZooKeeperError, match=rf"cannot listen on {host}:{port}: Address already in use"):
        asyncio.run(EmbeddedZooKeeper(tmp_path, port=int(port)).start())


def test_a_server_that_dies_early_shows_the_end_of_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "java").write_text("#!/bin/sh\necho no room on the heap\nexit 1\n")
    (tmp_path / "java").chmod(0o755)
    java = Java(executable=tmp_path / "java", home=tmp_path, version=17, found_by="PATH")
    monkeypatch.setattr(embedded_zookeeper, "find_java", lambda: java)
    with pytest.raises(EmbeddedZooKeeperError, match=r"(?s)ended before it answered.*no room on the heap"):
        asyncio.run(EmbeddedZooKeeper(tmp_path / "data").start())


def test_a_server_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "java").write_text("#!/bin/sh\nexec sleep 600\n")
    (tmp_path / "java").chmod(0o755)
    java = Java(executable=tmp_path / "java", home=tmp_path, version=17, found_by="PATH")
    monkeypatch.setattr(embedded_zookeeper, "find_java", lambda: java)
    server = EmbeddedZooKeeper(tmp_path / "data", start_timeout_s=0.3)
    with pytest.raises(EmbeddedZooKeeperError, match=r"did not answer within 0\.3 s; .* is empty"):
        asyncio.run(server.start())
    assert not server.running


def test_nobody_at_the_address_is_an_error_in_time() -> None:
    connector = KazooConnector("127.0.0.1:1/chroot", connect_timeout_s=0.5)
    with pytest.raises(ZkUnreachable, match=r"no ZooKeeper server answered at 127\.0\.0\.1:1 within 0\.5 s"):
        asyncio.run(connector.connect(on_watch=lambda _: None, on_expired=lambda: None))
    with pytest.raises(ValueError, match="names no server"):
        KazooConnector("/chroot")


PARENT = """
import asyncio, sys
from pathlib import Path
from controller.world.real.embedded_zookeeper import EmbeddedZooKeeper

async def main():
    server = await EmbeddedZooKeeper(Path(sys.argv[1])).start()
    print("started", server.address, server.pid, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


async def exchange(address: str, *ops: Create | GetData) -> list[ZkResult]:
    connector = KazooConnector(address, session_timeout_ms=4000, connect_timeout_s=20)
    session = await connector.connect(on_watch=lambda _: None, on_expired=lambda: None)
    try:
        return await session.perform(ops)
    finally:
        await session.close()


def test_it_dies_with_a_killed_parent_and_what_it_stored_is_there_after_a_restart(tmp_path: Path) -> None:
    """In the locale C too, in which scripts run and Java alone reads no path that is not all ASCII."""
    folder = tmp_path / "größe\\name [1]"
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(folder)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "LC_ALL": "C"},
        start_new_session=True,
    )
    assert parent.stdout is not None
    with parent.stdout:
        address, pid = next(line for line in parent.stdout if line.startswith("started ")).split()[1:]
        assert asyncio.run(exchange(address, Create("/kept", b"data")))[0].ok
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    assert ended(int(pid)), "the server outlived its parent"

    async def again() -> ZkResult:
        async with EmbeddedZooKeeper(folder) as server:
            return (await exchange(server.address, GetData("/kept")))[0]

    assert asyncio.run(again()).data == b"data"
    assert (folder / "data").is_dir()


def ended(pid: int) -> bool:
    async def wait() -> bool:
        async with asyncio.timeout(20):
            while group_lives(pid):  # noqa: ASYNC110  # another process: nothing tells us
                await asyncio.sleep(0.05)
        return True

    return asyncio.run(wait())


def group_lives(pid: int) -> bool:
    """Zombies do not count: as in a container, the first process may be one that buries nobody."""
    try:
        os.killpg(pid, 0)
    except ProcessLookupError:
        return False
    states = list(process_groups())
    return not states or any(group == pid and state != "Z" for state, group in states)


def process_groups() -> Iterator[tuple[str, int]]:
    """State and process group of every process, where there is a /proc."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, group = path.read_text().rpartition(")")[2].split()[:3]
            yield state, int(group)
