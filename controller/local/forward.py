"""`kwob forward`: passes connections on, one port for each of many nodes; the door of a network of containers.

A container engine publishes a port of one container. Where brokers are as many as somebody says, each is reached from
outside through this one container: port 19092 leads to port 19092 of the node whose number is 2. Bytes are passed on
as they are; a node that is not there ends the connection, as its own host would.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import re
import signal
import sys
from collections.abc import AsyncIterator, Iterable, Sequence
from functools import partial
from typing import Final

from controller.local.flags import EXIT_FAILED, make_parser

_CHUNK: Final = 65_536
_CONNECT_S: Final = 10.0
_PORT_MAX: Final = 65_535


def command_line() -> argparse.ArgumentParser:
    """The parser."""
    parser = make_parser(
        "kwob forward",
        "Passes connections on until SIGTERM: of the ports FIRST to LAST each leads to the same port of the node NAME, "
        "in which {n} is the port's place, counted from 1.",
        examples=["kwob forward 0.0.0.0:19091-19099 --to kwob-broker-{n}"],
        exit_codes="0 ended by a signal; 1 a port is in use; 2 wrong arguments",
    )
    parser.add_argument("ports", type=_ports, metavar="HOST:FIRST-LAST", help="where to listen")
    parser.add_argument(
        "--to", required=True, metavar="NAME", help="the nodes' names, with {n} in the place of a number"
    )
    return parser


def main(argv: Sequence[str]) -> int:
    """Runs until a signal. Returns the exit code (see --help)."""
    options = command_line().parse_args(argv)
    host, ports = options.ports
    try:
        return asyncio.run(_until_signal(host, ports, options.to))
    except OSError as error:
        print(f"kwob forward: {error.strerror or error}", file=sys.stderr)
        return EXIT_FAILED


async def _until_signal(host: str, ports: range, to: str) -> int:
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    doors = [(port, to.replace("{n}", str(place)), port) for place, port in enumerate(ports, start=1)]
    async with forwarding(host, doors):
        print(f"{host}:{ports[0]}-{ports[-1]} leads to {to}", flush=True)
        await ended.wait()
    return 0


@contextlib.asynccontextmanager
async def forwarding(host: str, doors: Sequence[tuple[int, str, int]]) -> AsyncIterator[list[int]]:
    """Passes on while the block runs: each door is a port, and the host and port that it leads to. Yields the ports
    that are listened at (0 takes a free one). Raises: OSError, for a port in use."""
    under_way: set[asyncio.Task[None]] = set()
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(_end, under_way)
        bound = []
        for port, name, target in doors:
            server = await asyncio.start_server(partial(_passed, under_way, name, target), host, port)
            stack.callback(server.close)
            bound.append(server.sockets[0].getsockname()[1])
        yield bound


async def _passed(
    under_way: set[asyncio.Task[None]], name: str, port: int, near: asyncio.StreamReader, answer: asyncio.StreamWriter
) -> None:
    task = asyncio.current_task()
    assert task is not None
    under_way.add(task)
    try:
        async with asyncio.timeout(_CONNECT_S):
            far, there = await asyncio.open_connection(name, port)
        await _both_ways((near, there), (far, answer))
    except (OSError, TimeoutError):
        pass  # as the node's own host: the connection ends
    finally:
        answer.close()
        under_way.discard(task)


async def _both_ways(*ways: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> None:
    """Until either way ends: Kafka's clients do not close half a connection."""
    tasks = [asyncio.create_task(_one_way(*way)) for way in ways]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await _end(tasks)
        for _, writer in ways:
            writer.close()


async def _one_way(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while chunk := await reader.read(_CHUNK):
        writer.write(chunk)
        await writer.drain()


async def _end(tasks: Iterable[asyncio.Task[None]]) -> None:
    for task in (found := list(tasks)):
        task.cancel()
    await asyncio.gather(*found, return_exceptions=True)


def _ports(text: str) -> tuple[str, range]:
    found = re.fullmatch(r"(.+):(\d+)-(\d+)", text)
    if found is None or not 0 < int(found[2]) <= int(found[3]) <= _PORT_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:FIRST-LAST, for example 0.0.0.0:19091-19099")
    return found[1].strip("[]"), range(int(found[2]), int(found[3]) + 1)
