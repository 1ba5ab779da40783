"""`kwob forward`: one port for each of many nodes."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys

import pytest

from controller.cli import main
from controller.local.forward import forwarding


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while chunk := await reader.read(65_536):
        writer.write(chunk)
        await writer.drain()
    writer.close()


async def _answer(port: int, sent: bytes) -> bytes:
    """What comes back until as much has come, or the connection ends."""
    async with asyncio.timeout(10):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        got = b""
        while len(got) < len(sent) and (chunk := await reader.read(65_536)):
            got += chunk
        writer.close()
        return got


def test_bytes_go_both_ways_and_a_node_that_is_not_there_ends_the_connection() -> None:
    async def work() -> tuple[bytes, bytes, bytes]:
        node = await asyncio.start_server(_echo, "127.0.0.1", 0)
        there = node.sockets[0].getsockname()[1]
        with socket.create_server(("127.0.0.1", 0)) as closed:
            nobody = closed.getsockname()[1]
        async with forwarding("127.0.0.1", [(0, "127.0.0.1", there), (0, "127.0.0.1", nobody)]) as ports:
            large = bytes(range(256)) * 4_096
            found = await _answer(ports[0], large), await _answer(ports[1], b"x"), await _answer(ports[0], b"again")
            assert found[0] == large
        node.close()
        return found

    _, absent, again = asyncio.run(work())
    assert (absent, again) == (b"", b"again")


def test_when_the_node_goes_its_clients_are_told_at_once() -> None:
    async def work() -> bytes:
        ended = asyncio.Event()

        async def node(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await ended.wait()
            writer.transport.abort()

        server = await asyncio.start_server(node, "127.0.0.1", 0)
        door = (0, "127.0.0.1", server.sockets[0].getsockname()[1])
        async with forwarding("127.0.0.1", [door]) as ports, asyncio.timeout(10):
            reader, writer = await asyncio.open_connection("127.0.0.1", ports[0])
            ended.set()
            got = await reader.read()
            writer.close()
        server.close()
        return got

    assert asyncio.run(work()) == b""


def test_a_signal_ends_it_and_a_port_in_use_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as used:
        port = used.getsockname()[1]
        assert main(["forward", f"127.0.0.1:{port}-{port}", "--to", "localhost"]) == 1
        assert str(port) in capsys.readouterr().err
    words = [sys.executable, "-m", "controller.cli", "forward", f"127.0.0.1:{port}-{port}", "--to", "localhost"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout.readline() == f"127.0.0.1:{port}-{port} leads to localhost\n"
        running.send_signal(signal.SIGTERM)
        assert running.wait(20) == 0


@pytest.mark.parametrize("ports", ["19091-19099", "h:2-1", "h:0-4", "h:1-70000", "h:1"])
def test_ports_that_are_no_range_are_refused(ports: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["forward", ports, "--to", "n"])
    assert "is not HOST:FIRST-LAST" in capsys.readouterr().err
