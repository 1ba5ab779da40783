"""`kwob test-cluster`: a cluster in this process whose handles are served over a port. For `KwobContainer`, which runs
it in a container and tells it where its brokers are published.

A connection brings one JSON line `{"token", "do", ...}` and takes one JSON value, `{"is": ...}` or `{"error": ...}`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import secrets
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from broker_sim.broker import StartRefused
from controller.embedded.backends import InThisProcess
from controller.embedded.cluster import EmbeddedPlan
from controller.local.flags import EXIT_FAILED, EXIT_USAGE, count, make_parser
from controller.local.up import run_until_signal
from controller.wire.fault_rows import parse_row
from controller.wire.zk_operations import ZkRefused, ZkSessionExpired, ZkUnreachable

#: Where the handles are served.
HANDLES_PORT: Final = 9090
TOKEN: Final = "KWOB_TOKEN"
_LINE_MAX: Final = 1 << 20
_LINE_S: Final = 10.0

Request = Mapping[str, Any]


class Refused(Exception):
    """What was asked for cannot be done. The message says why."""


#: What whoever asks is told: what cannot be done, what fails at its start, and a ZooKeeper that says nothing.
_FAILURES: Final = (
    *(Refused, ValueError, KeyError, TypeError, TimeoutError, OSError, StartRefused),
    *(ZkSessionExpired, ZkUnreachable, ZkRefused),
)


def parser() -> argparse.ArgumentParser:
    """The parser of `kwob test-cluster`."""
    made = make_parser(
        "kwob test-cluster",
        "Waits to be told which cluster to run in this process, without Java, and what to do to it: what KwobContainer "
        f"runs in a container. Who asks has to know the token in the environment's {TOKEN}.",
        examples=[f"{TOKEN}=secret kwob test-cluster --port 9090"],
        exit_codes="0 ended; 1 it cannot serve; 2 wrong arguments",
    )
    made.add_argument(
        "--port", type=count(0, 65_535), default=HANDLES_PORT, metavar="P",
        help=f"where the handles are served, 0 for a free port (default: {HANDLES_PORT})",
    )  # fmt: skip
    made.add_argument(
        "--host", default="0.0.0.0", help="address to serve them at (default: 0.0.0.0: every one of this machine)"
    )
    made.add_argument(
        "--data", type=Path, default=Path("test-cluster"), metavar="DIR", help="its data (default: test-cluster)"
    )
    return made


def main(argv: Sequence[str]) -> int:
    """`kwob test-cluster`. Returns the exit code (see --help)."""
    options = parser().parse_args(argv)
    token = os.environ.get(TOKEN, "")
    if not token:
        print(f"kwob test-cluster: {TOKEN} is not set; without it anybody could break the cluster", file=sys.stderr)
        return EXIT_USAGE
    try:
        return run_until_signal(serve(options.host, options.port, TestCluster(options.data, token)), interrupted=0)
    except OSError as error:
        where = f"{options.host}:{options.port}"
        print(f"kwob test-cluster: cannot serve at {where}: {error.strerror}", file=sys.stderr)
        return EXIT_FAILED


class TestCluster:
    """The cluster, once it was asked for, and what may be asked for."""

    __test__ = False  # not for pytest

    def __init__(self, data: Path, token: str) -> None:
        self._data = data
        self._token = token
        self._running: InThisProcess | None = None
        self._turn = asyncio.Lock()
        self._do: dict[str, Callable[..., Coroutine[Any, Any, Any]]] = {
            "start": self._start,
            "events": self._events,
            "metrics": self._metrics,
            "trace": self._trace,
            "truth": self._truth,
            "set_faults": self._set_faults,
            "active_controller": self._active_controller,
            "kill_controller": self._kill_controller,
            "start_controller": self._start_controller,
        }

    async def answer(self, line: bytes) -> dict[str, Any]:
        """The answer to a line. One request is done at a time."""
        try:
            request = json.loads(line)
            if not secrets.compare_digest(str(request["token"]).encode(), self._token.encode()):
                return {"error": "the token is wrong"}
            do = self._do[request["do"]]
            fields = {name: value for name, value in request.items() if name not in ("token", "do")}
        except (ValueError, KeyError, TypeError, RecursionError):
            return {"error": f"no request that is understood: {line[:80]!r}"}
        async with self._turn:
            try:
                return {"is": await do(**fields)}
            except _FAILURES as error:
                return {"error": str(error) or type(error).__name__}

    async def stop(self) -> None:
        """Ends it."""
        if self._running is not None:
            await self._running.stop()

    @property
    def _cluster(self) -> InThisProcess:
        if self._running is None:
            raise Refused("the cluster was not started")
        return self._running

    async def _start(self, **request: Any) -> dict[str, Any]:
        if self._running is not None:
            raise Refused("the cluster runs already")
        plan = plan_of(self._data, request)
        running = InThisProcess(plan)
        await running.start()
        self._running = running
        return {"log_dirs": {i: [str(path) for path in plan.log_dirs_of(i)] for i in plan.broker_ids}}

    async def _events(self) -> list[Any]:
        return json.loads(json.dumps(list(await self._cluster.events()), default=str))  # type: ignore[no-any-return]

    async def _metrics(self) -> list[str]:
        """The names alone: where a page is found depends on who looks."""
        return list(await self._cluster.metrics())

    async def _trace(self) -> list[Any]:
        return await self._cluster.trace()

    async def _truth(self) -> list[Any]:
        return [
            {
                "topic": tp.topic,
                "partition": tp.partition,
                "replicas": list(each.assignment.replicas),
                "leader": each.leader,
                "leader_epoch": each.state.leader_epoch if each.state else None,
                "isr": sorted(each.isr),
            }
            for tp, each in (await self._cluster.truth()).partitions.items()
        ]

    async def _set_faults(self, *, rows: list[Any]) -> None:
        await self._cluster.set_faults([parse_row(row) for row in rows])

    async def _active_controller(self) -> int | None:
        return await self._cluster.active_controller()

    async def _kill_controller(self, *, controller_id: int) -> None:
        await self._cluster.kill_controller(int(controller_id))

    async def _start_controller(self, *, controller_id: int) -> None:
        await self._cluster.start_controller(int(controller_id))


def plan_of(folder: Path, request: Request) -> EmbeddedPlan:
    """The plan that a request to start has. Raises: KeyError, TypeError, ValueError."""
    published = {
        int(i): {str(name): (str(host), int(port), int(bound)) for name, (host, port, bound) in each.items()}
        for i, each in request["published"].items()
    }
    pages = {int(i): int(port) for i, port in request["pages"].items()}
    return EmbeddedPlan(
        folder=folder,
        brokers=len(request["ids"]),
        ids=[int(i) for i in request["ids"]],
        controllers=int(request["controllers"]),
        racks=[str(rack) for rack in request["racks"]],
        settings={str(name): str(value) for name, value in request["settings"].items()},
        log_dirs=int(request["log_dirs"]),
        seed=request["seed"],
        published=published,
        page_ports=pages,
        metrics=bool(pages),
    )


async def serve(host: str, port: int, cluster: TestCluster, *, tell: Callable[[str], None] = print) -> int:
    """Serves the handles until it is cancelled. Raises: OSError."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, TimeoutError, ValueError):  # gone, silent, or an endless line
            async with asyncio.timeout(_LINE_S):
                line = await reader.readline()
            writer.write(json.dumps(await cluster.answer(line)).encode() + b"\n")
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(talk, host, port, limit=_LINE_MAX)
    tell(f"handles at {host}:{server.sockets[0].getsockname()[1]}")
    sys.stdout.flush()
    try:
        await asyncio.get_running_loop().create_future()
    finally:
        server.close()
        await cluster.stop()
    return 0
