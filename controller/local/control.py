"""How another terminal reaches a running `kwob up`: a socket in the data folder, one JSON line each way.

Also `kwob broker kill|stop|start ID`, which uses it. The broker stays a child of `kwob up`, so that Ctrl-C there
ends whatever was started again.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from controller.local.cluster import Cluster
from controller.local.status import DEFAULT_DATA, ClusterError, read_cluster

SOCKET_NAME: Final = "control.sock"
#: What the kernel takes for the path of a socket, less one (Linux: 108 bytes).
_SOCKET_PATH_MAX: Final = 103
_LINE_MAX: Final = 4096
_ANSWER_S: Final = 120.0
_DONE: Final = {"kill": "killed", "stop": "stopped", "start": "started"}


class BrokerCommand(BaseModel):
    """What shall be done to one broker."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    action: Literal["kill", "stop", "start"]
    broker: int


# -- in `kwob up` ------------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def serve_control(cluster: Cluster) -> AsyncIterator[None]:
    """Serves the socket while the block runs. Commands are done one after another. Raises: ClusterError."""
    path = cluster.plan.data / SOCKET_NAME
    if len(str(path)) > _SOCKET_PATH_MAX:
        raise ClusterError(f"the path {path} is too long for a socket; choose a shorter folder with --data")
    turn = asyncio.Lock()
    serving: set[asyncio.Task[Any]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        serving.add(task)
        try:
            line = await reader.readline()
            async with turn:
                answer = await _perform(cluster, line)
            writer.write(json.dumps(answer).encode() + b"\n")
            await writer.drain()
        except (ConnectionError, ValueError):
            pass  # whoever asked is gone, or sent an endless line: nobody to answer
        finally:
            serving.discard(task)
            writer.close()

    path.unlink(missing_ok=True)
    server = await asyncio.start_unix_server(serve, path, limit=_LINE_MAX)
    path.chmod(0o600)
    try:
        yield
    finally:
        server.close()
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)
        path.unlink(missing_ok=True)


async def _perform(cluster: Cluster, line: bytes) -> dict[str, str]:
    try:
        command = BrokerCommand.model_validate_json(line)
    except ValidationError:
        return {"error": "not a command of kwob"}
    try:
        match command.action:
            case "kill":
                await cluster.kill_broker(command.broker)
            case "start":
                await cluster.start_broker(command.broker)
            case "stop":
                if not await cluster.stop_broker(command.broker):
                    return {"done": f"broker {command.broker} did not end by itself in time and was killed"}
    except ClusterError as error:
        return {"error": str(error)}
    return {"done": f"broker {command.broker} {_DONE[command.action]}"}


# -- from another terminal ---------------------------------------------------------------------------------------------


def broker_main(argv: Sequence[str]) -> int:
    """`kwob broker kill|stop|start ID`. Returns the exit code: 0 when it is done."""
    parser = argparse.ArgumentParser(
        prog="kwob broker",
        description="Kills (SIGKILL), stops (controlled shutdown) or starts again a broker of a running kwob up.",
        epilog="kwob broker run ... is the broker program itself; see: kwob broker run --help",
    )
    parser.add_argument("action", choices=list(_DONE))
    parser.add_argument("id", type=int)
    parser.add_argument("--data", type=Path, default=DEFAULT_DATA, metavar="DIR", help="default: %(default)s")
    options = parser.parse_args(argv)
    try:
        read_cluster(options.data)
        print(ask(options.data, BrokerCommand(action=options.action, broker=options.id)))
    except ClusterError as error:
        print(f"kwob broker: {error}", file=sys.stderr)
        return 1
    return 0


def ask(data: Path, command: BrokerCommand) -> str:
    """Has the `kwob up` of a data folder do something. Returns what it says. Raises: ClusterError."""
    path = data.resolve() / SOCKET_NAME
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_ANSWER_S)
            connection.connect(str(path))
            connection.sendall(command.model_dump_json().encode() + b"\n")
            answer = json.loads(connection.makefile().readline() or '{"error": "kwob up ended"}')
    except (FileNotFoundError, ConnectionRefusedError):
        raise ClusterError(f"no kwob up runs in {data}; start it with: kwob up --data {data}") from None
    except (OSError, ValueError) as error:
        raise ClusterError(f"kwob up in {data} did not answer: {error}") from error
    if "error" in answer:
        raise ClusterError(answer["error"])
    return str(answer["done"])
