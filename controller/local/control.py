"""How another terminal reaches a running `kwob up`: a socket in the data folder, one JSON line each way.

Also `kwob broker kill|stop|start ID` and the same of controllers, which use it. The process stays a child of `kwob up`,
so that Ctrl-C there ends whatever was started again.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from controller.local.cluster import Cluster
from controller.local.cluster_file import ClusterError, read_cluster
from controller.local.flags import EXIT_FAILED, add_data, make_parser, reason, with_data
from controller.local.status import status
from controller.wire.fault_rows import FaultError
from controller.world.real import logs

SOCKET_NAME: Final = "control.sock"
#: In the place of a controller's id: the one that holds the office.
ACTIVE: Final = "active"
#: What the kernel takes for the path of a socket, less one (Linux: 108 bytes).
_SOCKET_PATH_MAX: Final = 103
_LINE_MAX: Final = 4096
_ANSWER_S: Final = 120.0
_DONE: Final = {"kill": "killed", "stop": "stopped", "start": "started"}


class ProcessCommand(BaseModel):
    """What shall be done to one broker or controller."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    action: Literal["kill", "stop", "start"]
    role: Literal["broker", "controller"]
    id: int


# -- in `kwob up` ------------------------------------------------------------------------------------------------------


def socket_path(data: Path) -> Path:
    """Where the socket of a data folder is. Raises: ClusterError, when a socket cannot have such a path."""
    path = data / SOCKET_NAME
    if len(os.fsencode(path)) > _SOCKET_PATH_MAX:
        raise ClusterError(f"the path {path} is too long for a socket; choose a shorter folder with --data")
    return path


@contextlib.asynccontextmanager
async def serve_control(cluster: Cluster) -> AsyncIterator[None]:
    """Serves the socket while the block runs. Commands are done one after another. Raises: ClusterError."""
    path = socket_path(cluster.plan.data)
    turn = asyncio.Lock()
    serving: set[asyncio.Task[Any]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        serving.add(task)
        try:
            line = await reader.readline()
            async with turn:
                answer = await perform(cluster, line)
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


async def perform(cluster: Cluster, line: bytes) -> dict[str, str]:
    """Does what a line asks for. Returns the answer."""
    try:
        command = ProcessCommand.model_validate_json(line)
    except ValidationError:
        return {"error": "not a command of kwob"}
    try:
        if not await _act(cluster, command):
            return {"done": f"{command.role} {command.id} did not end by itself in time and was killed"}
    except (ClusterError, FaultError) as error:
        return {"error": str(error)}
    except OSError as error:
        return {"error": reason(error)}
    return {"done": f"{command.role} {command.id} {_DONE[command.action]}"}


async def _act(cluster: Cluster, command: ProcessCommand) -> bool:
    """Does it. Returns whether a process that was stopped ended by itself in time. Raises: ClusterError."""
    match command.role, command.action:
        case "broker", "kill":
            await cluster.kill_broker(command.id)
        case "broker", "stop":
            return await cluster.stop_broker(command.id)
        case "broker", "start":
            await cluster.start_broker(command.id)
        case "controller", "kill":
            await cluster.kill_controller(command.id)
        case "controller", "stop":
            return await cluster.stop_controller(command.id)
        case "controller", "start":
            await cluster.start_controller(command.id)
    return True


# -- from another terminal ---------------------------------------------------------------------------------------------


def broker_main(argv: Sequence[str]) -> int:
    """`kwob broker kill|stop|start ID`. Returns the exit code: 0 when it is done."""
    return _main("broker", argv)


def controller_main(argv: Sequence[str]) -> int:
    """`kwob controller kill|stop|start ID`. Returns the exit code: 0 when it is done."""
    return _main("controller", argv)


def broker_command_line() -> argparse.ArgumentParser:
    """The parser."""
    return _command_line("broker")


def controller_command_line() -> argparse.ArgumentParser:
    """The parser."""
    return _command_line("controller")


def _command_line(role: Literal["broker", "controller"]) -> argparse.ArgumentParser:
    number, stop = {"broker": (2, "controlled shutdown"), "controller": (901, "SIGTERM: it resigns")}[role]
    parser = make_parser(
        f"kwob {role}",
        f"Kills (SIGKILL), stops ({stop}) or starts again a {role} of a running kwob up. "
        f"kwob {role} run ... is the program itself; see: kwob {role} run --help",
        examples=[f"kwob {role} kill {number}", f"kwob {role} start {number}"],
        exit_codes="0 done; 1 it could not be done; 2 wrong arguments",
    )
    parser.add_argument("action", choices=list(_DONE))
    if role == "broker":
        parser.add_argument("id", type=int, metavar="ID", help="as in kwob status")
    else:
        parser.add_argument("id", type=_id_or_active, metavar="ID", help="as in kwob status, or: active")
    add_data(parser)
    return parser


def _main(role: Literal["broker", "controller"], argv: Sequence[str]) -> int:
    options = _command_line(role).parse_args(argv)
    logs.configure(role, level="error")
    try:
        read_cluster(options.data)
        number = active_controller(options.data) if options.id == ACTIVE else options.id
        print(ask(options.data, ProcessCommand(action=options.action, role=role, id=number)))
    except ClusterError as error:
        print(f"kwob {role}: {error}", file=sys.stderr)
        return EXIT_FAILED
    return 0


def _id_or_active(text: str) -> int | str:
    if text == ACTIVE:
        return text
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is neither an id nor: {ACTIVE}")
    return int(text)


def active_controller(data: Path) -> int:
    """The id of the controller that holds the office. Raises: ClusterError, when none of this folder does."""
    found = [controller.id for controller in status(data).controllers if controller.active]
    if not found:
        raise ClusterError(f"no controller of {data} is active now; {with_data('kwob status', data)} tells more")
    return found[0]


def ask(data: Path, command: ProcessCommand) -> str:
    """Has the `kwob up` of a data folder do something. Returns what it says. Raises: ClusterError."""
    path = data.resolve() / SOCKET_NAME
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_ANSWER_S)
            connection.connect(str(path))
            connection.sendall(command.model_dump_json().encode() + b"\n")
            answer = json.loads(connection.makefile().readline() or '{"error": "kwob up ended"}')
    except (FileNotFoundError, ConnectionRefusedError):
        raise ClusterError(f"no kwob up runs in {data}; start it with: {with_data('kwob up', data)}") from None
    except (OSError, ValueError) as error:
        raise ClusterError(f"kwob up in {data} did not answer: {error}") from error
    if "error" in answer:
        raise ClusterError(answer["error"])
    return str(answer["done"])
