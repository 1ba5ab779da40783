"""`kwob up`: a local cluster in one terminal until Ctrl-C, and `kwob down`, which ends it from another one."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import shlex
import signal
import sys
import time
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeVar

from rich.console import Console

from controller.local.alike import add_like, bars, likeness_asked, make_alike, require_alone
from controller.local.cluster import Cluster
from controller.local.cluster_file import CLUSTER_FILE, ClusterError, ClusterRow, StartRow, read_cluster, read_start
from controller.local.control import serve_control, socket_path
from controller.local.flags import (
    DATA_VARIABLE,
    EXIT_FAILED,
    EXIT_USAGE,
    add_data,
    count,
    default_data,
    headed,
    make_parser,
    plain_console,
    plural,
    reason,
    with_data,
)  # fmt: skip
from controller.local.like import Likeness
from controller.local.place import LOCK_FILE, lock_owner, own_folder
from controller.local.plan import ALONE_MAX, OWN_SETTINGS, ClusterPlan, files_allowed, files_needed, plan_cluster
from controller.local.readiness import wait_until_whole
from controller.rules.configs import settings
from controller.wire.types import BrokerId
from controller.world.exit_codes import INTERRUPTED
from controller.world.real import logs

_DOWN_WAIT_S: Final = 90.0
_WATCH_S: Final = 0.5

Result = TypeVar("Result")

#: The ports of Kafka's and ZooKeeper's own examples.
_BOOTSTRAP_PORT: Final = 9092
_ZOOKEEPER_PORT: Final = 2181


def main(argv: Sequence[str]) -> int:
    """`kwob up`. Returns the exit code: 0 after Ctrl-C, 1 when the cluster cannot run, 2 for wrong arguments."""
    options = parser_of_up().parse_args(argv)
    try:
        _require_not_own(settings.load(None, options.override))
        require_alone(options)
    except settings.SettingError as error:
        print(f"kwob up: {error}", file=sys.stderr)
        return EXIT_USAGE
    try:
        like = likeness_asked(options)
        plan, remarks = cluster_plan(options, like)
        socket_path(plan.data)
        with own_folder(plan.data), logs.configure("up", json_file=plan.log_path("up")):
            return run_until_signal(run_cluster(plan, remarks, like), interrupted=0)
    except ClusterError as error:
        print(f"kwob up: {error}", file=sys.stderr)
    except OSError as error:
        print(f"kwob up: {reason(error)}", file=sys.stderr)
    return EXIT_FAILED


def parser_of_up() -> argparse.ArgumentParser:
    """The options of `kwob up`."""
    parser = make_parser(
        "kwob up",
        "Runs a local cluster (ZooKeeper, controllers, brokers) until Ctrl-C. Its state stays in --data; on a folder "
        "that was used before, what is not given is as it was, but for --log-level.",
        examples=[
            "kwob up",
            "kwob up --brokers 6 --controllers 2 --racks a,b,c",
            "kwob up --log-dirs 2 --override replica.lag.time.max.ms=4000",
            "kwob up --like cluster.yaml --scale 1/1000 --data copy",
        ],
        exit_codes="0 after Ctrl-C; 1 the cluster cannot run; 2 wrong arguments",
    )
    parser.add_argument("--brokers", type=count(1, 200), metavar="N", help="1 to 200 (default: 3)")
    parser.add_argument(
        "--broker-processes", type=count(1, 200), metavar="N",
        help="processes that the brokers share (default: one each up to 10 brokers, else one per processor)",
    )  # fmt: skip
    parser.add_argument("--controllers", type=count(1, 9), metavar="N", help="1 to 9 (default: 1)")
    parser.add_argument("--racks", metavar="A,B,C", help="racks, given to the brokers in turn (default: none)")
    parser.add_argument(
        "--log-dirs", type=count(1, 16), metavar="N", help="log directories of each broker, 1 to 16 (default: 1)"
    )
    add_like(parser)
    add_data(parser)
    parser.add_argument(
        "--bootstrap-port", type=count(1, 65_000), metavar="PORT",
        help=f"of broker 1; the others follow (default: {_BOOTSTRAP_PORT})",
    )  # fmt: skip
    parser.add_argument("--zookeeper-port", type=count(1, 65_535), metavar="PORT", help=f"default: {_ZOOKEEPER_PORT}")
    parser.add_argument(
        "--metrics-port", type=count(1, 65_000), metavar="PORT",
        help="serve Prometheus metrics: broker 1 here, the other brokers and the controllers on the ports after it",
    )  # fmt: skip
    parser.add_argument(
        "--override", action="append", default=[], metavar="NAME=VALUE",
        help="a setting under Kafka's name, for brokers and controllers; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--log-level", default="info", choices=["debug", "info"],
        help="of the files in DIR/logs (default: info); debug has each transition and request",
    )  # fmt: skip
    return parser


def _require_not_own(given: Mapping[str, str]) -> None:
    """Raises: SettingError for what would be ignored."""
    for name in given:
        if name in OWN_SETTINGS:
            raise settings.SettingError(f"{name} is not for --override here: {OWN_SETTINGS[name]}")


def cluster_plan(options: argparse.Namespace, like: Likeness | None = None) -> tuple[ClusterPlan, list[str]]:
    """What to run, and what to remark on: what was not given is as the folder had it. Raises: ClusterError."""
    data: Path = options.data
    earlier = read_cluster(data) if (data / CLUSTER_FILE).exists() else None
    start = read_start(data)
    if like is not None:
        return _plan_like(options, like, earlier, start), list(like.remarks)
    brokers = options.brokers or (len(earlier.brokers) if earlier else 3)
    ids = [b.id for b in earlier.brokers] if earlier is not None and brokers == len(earlier.brokers) else []
    log_dirs = options.log_dirs or (max(len(b.log_dirs) for b in earlier.brokers) if earlier else 1)
    racks = [rack.strip() for rack in (options.racks or "").split(",") if rack.strip()]
    remarks = []
    if earlier is not None:
        if options.racks is None:
            racks = [b.rack for b in earlier.brokers if b.rack is not None]
        absent = [] if ids else [b.id for b in earlier.brokers if b.id > brokers]
        if absent:
            names = ", ".join(map(str, absent))
            remarks.append(
                f"{plural(len(absent), 'broker')} of this folder ({names}) will not run: what only they have is "
                f"offline; for all: --brokers {len(earlier.brokers)}"
            )
        if any(len(b.log_dirs) > log_dirs for b in earlier.brokers):
            remarks.append("this folder had more log directories per broker; what lies in the others is not served")
    given = {text.partition("=")[0].strip() for text in options.override}
    kept = [text for text in start.settings if text.partition("=")[0].strip() not in given]
    if kept:
        remarks.append(f"set as before: {', '.join(kept)}; --override says otherwise")
    plan = plan_cluster(
        data=data,
        brokers=brokers,
        controllers=options.controllers or (len(earlier.controllers) if earlier else 1),
        racks=racks,
        settings=[*kept, *options.override],
        broker_processes=options.broker_processes or start.broker_processes,
        log_dir_count=log_dirs,
        log_level=options.log_level,
        ids=ids,
        **_ports(options, earlier, start, brokers),
    )
    return plan, remarks


def _ports(options: argparse.Namespace, earlier: ClusterRow | None, start: StartRow, brokers: int) -> dict[str, Any]:
    """Those arguments of `plan_cluster` that are ports: as given, or as the folder had them."""
    before = [_port(b.listener) for b in earlier.brokers] if earlier else []
    first = options.bootstrap_port or (before[0] if before else _BOOTSTRAP_PORT)
    return {
        "ports": range(first, first + brokers),
        "zookeeper_port": options.zookeeper_port or (_port(earlier.zookeeper) if earlier else _ZOOKEEPER_PORT),
        "metrics_port": options.metrics_port or start.metrics_port,
    }


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])


def _plan_like(options: argparse.Namespace, like: Likeness, earlier: ClusterRow | None, start: StartRow) -> ClusterPlan:
    count_of = len(like.brokers)
    racks = [rack for rack in like.brokers.values() if rack is not None]
    return plan_cluster(
        data=options.data,
        brokers=count_of,
        controllers=options.controllers or 1,
        racks=racks,
        settings=[*like.settings, *options.override],
        broker_processes=options.broker_processes or start.broker_processes,
        log_dir_count=like.log_dirs,
        log_level=options.log_level,
        ids=list(like.brokers),
        **_ports(options, earlier, start, count_of),
    )


async def run_cluster(plan: ClusterPlan, remarks: Sequence[str], like: Likeness | None = None) -> int:
    """Starts it and tells of it until it is cancelled; what was started has ended then. Raises: ClusterError."""
    console = plain_console()
    processes = "" if len(plan.groups) == len(plan.brokers) else f" in {len(plan.groups)} processes"
    console.print(
        f"starting {plural(len(plan.brokers), 'broker')}{processes} and "
        f"{plural(len(plan.controller_ids), 'controller')} in {plan.data}"
    )
    for remark in remarks:
        console.print(headed("note", remark))
    tell_scale(plan, console)
    try:
        async with _started(plan, console) as cluster, serve_control(cluster):
            console.print(f"bootstrap {plan.bootstrap}\nzookeeper {plan.zookeeper}\nlogs      {plan.data / 'logs'}")
            if plan.metrics:
                console.print(f"metrics   http://{next(iter(plan.metrics.values()))}/metrics and the ports after it")
            missing = await wait_until_whole(plan.bootstrap, [BrokerId(b.broker_id) for b in plan.brokers])
            if missing is not None:
                console.print(f"not whole yet: {missing}; going on")
            if like is not None:
                await make_alike(plan.bootstrap, like, console)
            console.print(f"ready; Ctrl-C ends it. In another terminal: {what_to_type(plan)}")
            await tell_ends(cluster, console)
    finally:
        console.print("ended; nothing is left running")
    return 0


@contextlib.asynccontextmanager
async def _started(plan: ClusterPlan, console: Console) -> AsyncIterator[Cluster]:
    """The running cluster; on a terminal a bar shows how many brokers are up."""
    progress = bars(console)
    task = progress.add_task("brokers up", total=len(plan.brokers))
    with progress:
        cluster = Cluster(plan, on_broker_up=lambda broker_id: progress.advance(task), on_note=console.print)
        await cluster.__aenter__()
    try:
        yield cluster
    finally:
        await cluster.__aexit__()


def tell_scale(plan: ClusterPlan, console: Console) -> None:
    """What a large or a small cluster does otherwise, and whether this machine lets it open enough files."""
    for setting in plan.broker_settings[: len(plan.broker_settings) - len(plan.settings)]:
        how_many = "few" if len(plan.brokers) < ALONE_MAX else "many"
        console.print(f"{setting} for the brokers, because there are {how_many}; --override says otherwise")
    needed, allowed = files_needed(len(plan.brokers), max(map(len, plan.groups))), files_allowed()
    if allowed is not None and needed > allowed:
        enough = len(replace(plan, broker_processes=None).groups)
        what_to_do = (
            "when every broker follows every other, connections will be refused; raise it (ulimit -Hn "
            f"{needed}) or use more processes (--broker-processes {enough})"
        )
        console.print(
            headed(f"a broker process may come to need {needed} open files, and the limit is {allowed}", what_to_do)
        )


async def tell_ends(cluster: Cluster, console: Console) -> None:
    """One line whenever a process ends or runs again; ZooKeeper is started again, for ever. Until cancelled."""
    alive, downs, trouble = set(cluster.children), dict[int, str](), ""
    while True:
        if not cluster.is_zookeeper_up:
            if not trouble:
                console.print("ZooKeeper ended; starting it again (until then nothing can change in the cluster)")
            try:
                await cluster.restart_zookeeper()
                console.print("ZooKeeper runs again")
                trouble = ""
            except ClusterError as error:
                if str(error) != trouble:
                    console.print(f"ZooKeeper does not start: {error}")
                trouble = str(error)
        now = {name for name, child in cluster.children.items() if child.is_alive}
        for name in sorted(alive ^ now):
            again = how_to_start(name, cluster.plan.data)
            console.print(f"{name} runs again" if name in now else f"{name} ended; {again}")
        if alive != now:
            cluster.write_file()
        alive = now
        before, downs = downs, cluster.downs()
        for broker_id in sorted(before.keys() ^ downs.keys()):
            down = downs.get(broker_id)
            console.print(
                f"broker {broker_id} " + ("may run again" if down is None else f"is down by the fault {down}")
            )
        await asyncio.sleep(_WATCH_S)


def how_to_start(name: str, data: Path) -> str:
    """What to type where a process of that name has ended."""
    role, number = name.split("-")[:2]
    command = f"kwob {role.removesuffix('s')} start {number}"
    return f"to start it again: {with_data(command, data)}"


def what_to_type(plan: ClusterPlan) -> str:
    """What finds this cluster from another terminal. Kafka's tools have no --data: the variable is for all commands."""
    commands = f"kwob status, kwob topics --list, kwob broker kill {plan.brokers[0].broker_id}"
    if plan.data == default_data().resolve():
        return commands
    return f"export {DATA_VARIABLE}={shlex.quote(str(plan.data))}; then {commands}"


def run_until_signal(work: Coroutine[Any, Any, int], *, interrupted: int = INTERRUPTED) -> int:
    """Runs `work` to its end; SIGINT, SIGTERM and SIGHUP cancel it once, and its clean-up is waited for.

    Returns its result, or `interrupted`.
    """

    async def guarded() -> int:
        task = asyncio.ensure_future(work)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, _cancel_once(task))
        try:
            return await task
        except asyncio.CancelledError:
            return interrupted

    return asyncio.run(guarded())


def _cancel_once(task: asyncio.Future[int]) -> Any:
    asked = False

    def cancel() -> None:
        nonlocal asked
        if not asked:
            task.cancel()
        asked = True

    return cancel


# -- down --------------------------------------------------------------------------------------------------------------


def down_command_line() -> argparse.ArgumentParser:
    """The parser."""
    parser = make_parser(
        "kwob down",
        "Ends the cluster that runs in a data folder.",
        examples=["kwob down", "kwob down --data other-data"],
        exit_codes="0 nothing runs there any more; 1 there is no such folder, or it does not end; 2 wrong arguments",
    )
    add_data(parser)
    return parser


def down_main(argv: Sequence[str]) -> int:
    """`kwob down`. Returns the exit code: 0 when nothing runs in the folder any more."""
    parser = down_command_line()
    options = parser.parse_args(argv)
    try:
        read_cluster(options.data)
        _end(options.data)
    except ClusterError as error:
        print(f"kwob down: {error}", file=sys.stderr)
        return EXIT_FAILED
    except OSError as error:  # another user's
        print(f"kwob down: {reason(error)}", file=sys.stderr)
        return EXIT_FAILED
    return 0


def _end(data: Path) -> None:
    lock_path = data / LOCK_FILE
    owner = lock_owner(lock_path)
    if owner is None:
        print(f"nothing runs in {data}")
        return
    with contextlib.suppress(ProcessLookupError):
        os.kill(owner, signal.SIGTERM)
    limit = time.monotonic() + _DOWN_WAIT_S
    while lock_owner(lock_path) is not None:
        if time.monotonic() > limit:
            raise ClusterError(f"process {owner} did not end within {_DOWN_WAIT_S:g} s")
        time.sleep(0.1)
    print(f"ended the cluster in {data}")
