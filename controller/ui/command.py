"""`kwob ui`: serves the page until Ctrl-C."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import errno
import io
import os
import secrets
import socket
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from controller.admin.cluster.client import AdminClient, Timeouts
from controller.admin.cluster.links import InvalidBootstrap
from controller.admin.toolkit.machine import this_machine
from controller.local import why_local
from controller.local.cluster_file import ClusterError, read_cluster
from controller.local.flags import EXIT_FAILED, EXIT_USAGE, count, default_data, make_parser
from controller.ui.board import Board
from controller.world.real.net import TcpNetwork

#: The page shall say soon that a broker does not answer.
_TIMEOUTS: Final = Timeouts(request_s=5.0, call_s=10.0, coordinator_s=0.0)
#: Which browsers leave out.
_HTTP_PORT: Final = 80
_LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")


def command_line() -> argparse.ArgumentParser:
    """The parser."""
    parser = make_parser(
        "kwob ui",
        "Serves a page that shows a cluster: brokers and disks, every partition, moves, groups and lag, the "
        "controller's events, and why a partition is not as it should be. Any Kafka from 2.6 to 4.x can be shown; with "
        "--actions, buttons break and heal a cluster of kwob up. Rehearsals have a time line, two side by side.",
        examples=[
            "kwob ui",
            "kwob ui --actions --data kwob-data",
            "kwob ui --bootstrap-server kafka:9092",
            "kwob ui --rehearsal before --rehearsal after",
            "kwob ui --rehearsal .",
        ],
        exit_codes="0 after Ctrl-C; 1 it cannot be served; 2 wrong arguments",
    )
    parser.add_argument(
        "--bootstrap-server", metavar="H:P[,H:P]", help="brokers of any cluster, which is only looked at"
    )
    parser.add_argument(
        "--data", type=Path, metavar="DIR", help="folder of a kwob up cluster (default: $KWOB_DATA, else kwob-data)"
    )
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to serve at (default: 127.0.0.1: this machine only)"
    )
    parser.add_argument(
        "--port", type=count(0, 65_535), default=8090, metavar="P", help="0 takes a free one (default: 8090)"
    )
    parser.add_argument("--actions", action="store_true", help="buttons that break and heal the cluster of --data")
    parser.add_argument(
        "--rehearsal", type=Path, action="append", default=[], metavar="DIR",
        help="folder of kwob rehearse --out, or one that has such folders in it; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--report", type=Path, metavar="FILE", help="the report.html of a replay, shown within the page"
    )
    return parser


def main(argv: Sequence[str]) -> int:
    """`kwob ui`. Returns the exit code (see --help)."""
    options = command_line().parse_args(argv)
    if options.actions and options.bootstrap_server is not None:
        print("kwob ui: --actions breaks a cluster of kwob up: give --data, not --bootstrap-server", file=sys.stderr)
        return EXIT_USAGE
    try:
        with _listening(options.host, options.port) as listener:
            return asyncio.run(_serve(options, listener))
    except BrokenPipeError:  # of its output, whose reader has seen enough
        raise
    except (ClusterError, InvalidBootstrap, OSError, ValueError) as error:
        print(f"kwob ui: {error}", file=sys.stderr)
        return EXIT_FAILED
    except KeyboardInterrupt:
        return 0


def _listening(host: str, port: int) -> socket.socket:
    """Raises: OSError, which names the address."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=256)
    except OSError as error:
        is_unknown = isinstance(error, socket.gaierror)
        why = os.strerror(error.errno) if error.errno and not is_unknown else error.strerror or str(error)
        other = "--host" if is_unknown or error.errno == errno.EADDRNOTAVAIL else "--port"
        raise OSError(f"cannot serve at {host}:{port}: {why}; choose another {other}") from error


async def _serve(options: argparse.Namespace, listener: socket.socket) -> int:
    from controller.ui.serving import PageServer
    from controller.ui.web import Site

    board, looks = Board(), list[Callable[[], Coroutine[Any, Any, None]]]()
    port = listener.getsockname()[1]
    data = _data_of(options)
    admin = None
    if data is not None or options.bootstrap_server is not None:
        bootstrap = options.bootstrap_server if data is None else read_cluster(data).bootstrap
        admin = AdminClient(TcpNetwork(), bootstrap, client_id="kwob-ui", timeouts=_TIMEOUTS)
        looks = list(_looks(admin, board, data))
    token = secrets.token_urlsafe(18) if options.actions else None
    site = Site(
        board=board,
        hosts=hosts_of(options.host, port),
        why=partial(_why, options.bootstrap_server, data) if admin is not None else None,
        perform=_perform(data),
        token=token,
        rehearsals=_rehearsals(options.rehearsal),
        report=None if options.report is None else _report(options.report),
    )
    print(f"http://{_shown(options.host)}:{port}/{'' if token is None else f'#token={token}'}", flush=True)
    if options.host not in _LOOPBACK:
        print(
            "note: whoever reaches this address sees the cluster" + (", and with the token breaks it" if token else "")
        )
    tasks = [asyncio.create_task(look()) for look in looks]
    try:
        await PageServer(site).serve(sockets=[listener])
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if admin is not None:
            admin.close()
    return 0


def _report(path: Path) -> bytes:
    """Raises: OSError, which names the file."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise OSError(f"--report {path} cannot be read: {error.strerror}") from error


def _data_of(options: argparse.Namespace) -> Path | None:
    """The data folder that is looked at, None for none. Raises: ClusterError."""
    if options.bootstrap_server is not None:
        return None
    if options.data is None and not options.actions and (options.rehearsal or options.report):
        return None
    data: Path = options.data or default_data()
    read_cluster(data)
    return data


def _looks(admin: AdminClient, board: Board, data: Path | None) -> list[Callable[[], Coroutine[Any, Any, None]]]:
    from controller.ui.cluster_looks import ClusterLooks
    from controller.ui.local_looks import LocalLooks

    looks: list[Callable[[], Coroutine[Any, Any, None]]] = [ClusterLooks(admin, board).run]
    return looks if data is None else [*looks, LocalLooks(data, board).run]


def _perform(data: Path | None) -> Callable[[bytes], str] | None:
    if data is None:
        return None
    from controller.ui.actions import perform

    return partial(perform, data)


def _rehearsals(folders: Sequence[Path]) -> dict[str, Callable[[], Mapping[str, Any]]]:
    if not folders:
        return {}
    from controller.ui.rehearsals import found

    return found(folders)


def hosts_of(host: str, port: int) -> frozenset[str]:
    """What a browser may call this page. An address for all interfaces has every name of this machine."""
    names = {*_LOOPBACK, host}
    if host in ("0.0.0.0", "::"):
        names |= {socket.gethostname(), socket.getfqdn()}
        with contextlib.suppress(OSError):
            names |= {str(row[4][0]) for row in socket.getaddrinfo(socket.gethostname(), None)}
    shown = {_shown(name).lower() for name in names}  # as browsers write them
    return frozenset(f"{name}:{port}" for name in shown) | (shown if port == _HTTP_PORT else set())


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host


async def _why(bootstrap: str | None, data: Path | None, target: str) -> str:
    """What `kwob why` says."""
    out = io.StringIO()
    options = argparse.Namespace(target=target, bootstrap_server=bootstrap, zookeeper=None, data=data, json=False)
    await why_local.run(options, replace(this_machine(), out=out, err=out))
    return out.getvalue()
