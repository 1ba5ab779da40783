"""`kwob health HOST:PORT --id N`: whether a controller or broker serves, for container health checks and scripts.

A port that accepts says little. This asks for Metadata as a client does: a broker is healthy once it lists itself, that
is, once it is registered and the controller has told it so; a controller, active or not, once it answers with itself.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import re
from collections.abc import Sequence
from typing import Final

from controller.admin.toolkit.machine import Machine, this_machine
from controller.wire.protocol import ApiKey, ProtocolError
from controller.wire.whole import whole
from controller.world.client import BrokerConnection, Disconnected
from controller.world.help_text import help_end
from controller.world.real.own_name import own_name

EXIT_HEALTHY: Final = 0
EXIT_UNHEALTHY: Final = 1
#: As `kwob broker run --broker-id by-name`.
BY_NAME: Final = "by-name"
#: The first version in which an empty list of topics asks for none of them, and nothing is created.
_METADATA_VERSION: Final = 4


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="kwob health",
        description="Tells whether a controller or a broker serves: it answers, and its answer lists it.",
        **help_end(
            ["kwob health localhost:9092 --id 1", "kwob health localhost:9901 --id 901 --timeout-s 2"],
            "0 it serves; 1 it does not (one line on standard error says why); 2 wrong arguments",
        ),
    )
    made.add_argument("address", type=_address, metavar="HOST:PORT", help="its listener")
    made.add_argument(
        "--id", type=_id, required=True, metavar="N",
        help="its broker.id or controller id; by-name: the number at the end of this container's name",
    )  # fmt: skip
    made.add_argument(
        "--timeout-s", type=_limit, default=5.0, metavar="S", help="limit for the whole check (default 5)"
    )
    return made


def main(argv: Sequence[str], machine: Machine | None = None) -> int:
    """Runs the check. Returns the exit code."""
    return asyncio.run(main_async(argv, machine or this_machine()))


async def main_async(argv: Sequence[str], machine: Machine) -> int:
    """As `main`, on the running loop."""
    options = parser().parse_args(argv)
    host, port = options.address
    complaint = await unhealthy(machine, host, port, node_id=options.id, timeout_s=options.timeout_s)
    if complaint is None:
        return EXIT_HEALTHY
    machine.err.write(f"{host}:{port} is not healthy: {complaint}\n")
    return EXIT_UNHEALTHY


async def unhealthy(machine: Machine, host: str, port: int, *, node_id: int, timeout_s: float) -> str | None:
    """What is wrong with the node at `host:port`, or None."""
    try:
        async with asyncio.timeout(timeout_s):
            listed = await _listed(machine, host, port, timeout_s)
    except TimeoutError:
        return f"no answer within {timeout_s:g} s"
    except (OSError, Disconnected, ProtocolError) as error:
        return str(error) or type(error).__name__
    if node_id not in listed:
        return f"it does not list {node_id} among the nodes it knows ({', '.join(map(str, listed)) or 'none'})"
    return None


async def _listed(machine: Machine, host: str, port: int, timeout_s: float) -> list[int]:
    connection = await BrokerConnection.open(machine.network, host, port, client_id="health", timeout_s=timeout_s)
    try:
        asked = {"topics": [], "allow_auto_topic_creation": False}
        answer = await connection.call(ApiKey.METADATA, _METADATA_VERSION, asked, timeout_s=timeout_s)
        return sorted(int(broker.node_id) for broker in answer.brokers)
    finally:
        connection.close()


def _id(text: str) -> int:
    if text != BY_NAME:
        if (node_id := whole(text)) is None:
            raise argparse.ArgumentTypeError(f"{text!r} is neither a whole number nor {BY_NAME}")
        return node_id
    number = re.search(r"(\d+)$", own_name() or "")
    if number is None:
        raise argparse.ArgumentTypeError("no name server knows this machine by a name that ends in a number")
    return int(number[1])


def _limit(text: str) -> float:
    try:
        limit_s = float(text)
    except ValueError:
        limit_s = math.nan
    if not 0 < limit_s < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds above 0")
    return limit_s


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 1 << 16:
        raise argparse.ArgumentTypeError(f"{text!r} is not host:port, for example localhost:9092")
    return host.strip("[]"), int(port)
