"""`kwob up`: a local cluster in one terminal until Ctrl-C, and `kwob down`, which ends it from another one."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import fcntl
import os
import resource
import signal
import sys
import time
from collections.abc import AsyncIterator, Coroutine, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from controller.local.cluster import Cluster
from controller.local.control import serve_control
from controller.local.place import LOCK_FILE, own_folder
from controller.local.plan import ClusterPlan, plan_cluster
from controller.local.readiness import wait_until_whole
from controller.local.status import DEFAULT_DATA, ClusterError, read_cluster
from controller.rules.configs import settings
from controller.wire.types import BrokerId
from controller.world.exit_codes import INTERRUPTED
from controller.world.real import logs

#: An exit code of its own for "ended by the user", as shells have it for SIGINT.
_DOWN_WAIT_S: Final = 90.0
_WATCH_S: Final = 0.5

Result = TypeVar("Result")


def main(argv: Sequence[str]) -> int:
    """`kwob up`. Returns the exit code: 0 after Ctrl-C, 1 when the cluster cannot run."""
    parser = argparse.ArgumentParser(
        prog="kwob up",
        description="Runs a local cluster (ZooKeeper, controllers, brokers) until Ctrl-C. Its state stays in --data.",
    )
    parser.add_argument("--brokers", type=_count(1, 200), default=3, metavar="N", help="1 to 200 (default: 3)")
    parser.add_argument(
        "--broker-processes", type=_count(1, 200), metavar="N",
        help="processes that the brokers share (default: one each up to 10 brokers, else one per processor)",
    )  # fmt: skip
    parser.add_argument("--controllers", type=_count(1, 9), default=1, metavar="N", help="1 to 9 (default: 1)")
    parser.add_argument("--racks", default="", metavar="A,B,C", help="racks, given to the brokers in turn")
    parser.add_argument("--data", type=Path, default=DEFAULT_DATA, metavar="DIR", help="default: %(default)s")
    parser.add_argument(
        "--bootstrap-port", type=_count(1, 65_000), default=9092, metavar="PORT",
        help="of broker 1; the others follow (default: 9092)",
    )  # fmt: skip
    parser.add_argument("--zookeeper-port", type=_count(1, 65_535), default=2181, metavar="PORT", help="default: 2181")
    parser.add_argument(
        "--override", action="append", default=[], metavar="NAME=VALUE",
        help="a setting under Kafka's name, for brokers and controllers; may be repeated",
    )  # fmt: skip
    options = parser.parse_args(argv)
    try:
        settings.load(None, options.override)
        plan = plan_cluster(
            data=options.data,
            brokers=options.brokers,
            controllers=options.controllers,
            racks=[rack.strip() for rack in options.racks.split(",") if rack.strip()],
            ports=range(options.bootstrap_port, options.bootstrap_port + options.brokers),
            zookeeper_port=options.zookeeper_port,
            settings=options.override,
            broker_processes=options.broker_processes,
        )
        with own_folder(plan.data), logs.configure("up", json_file=plan.log_path("up")):
            return run_until_signal(_up(plan), interrupted=0)
    except (ClusterError, settings.SettingError, OSError) as error:
        print(f"kwob up: {error}", file=sys.stderr)
        return 1


async def _up(plan: ClusterPlan) -> int:
    console = Console(highlight=False, soft_wrap=True)
    processes = "" if len(plan.groups) == len(plan.brokers) else f" in {len(plan.groups)} processes"
    console.print(
        f"starting {len(plan.brokers)} brokers{processes} and {len(plan.controller_ids)} controllers in {plan.data}"
    )
    tell_scale(plan, console)
    try:
        async with _started(plan, console) as cluster, serve_control(cluster):
            console.print(f"bootstrap {plan.bootstrap}\nzookeeper {plan.zookeeper}\nlogs      {plan.data / 'logs'}")
            missing = await wait_until_whole(plan.bootstrap, [BrokerId(b.broker_id) for b in plan.brokers])
            if missing is not None:
                console.print(f"not whole yet: {missing}; going on")
            console.print("ready; Ctrl-C ends it. In another terminal: kwob status, kwob topics, kwob broker kill 1")
            await _tell_ends(cluster, console)
    finally:
        console.print("ended; nothing is left running")
    return 0


@contextlib.asynccontextmanager
async def _started(plan: ClusterPlan, console: Console) -> AsyncIterator[Cluster]:
    """The running cluster; on a terminal a bar shows how many brokers are up."""
    progress = Progress(
        TextColumn("brokers up"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
        console=console, transient=True, disable=not console.is_terminal,
    )  # fmt: skip
    task = progress.add_task("", total=len(plan.brokers))
    with progress:
        cluster = Cluster(plan, on_broker_up=lambda broker_id: progress.advance(task), on_note=console.print)
        await cluster.__aenter__()
    try:
        yield cluster
    finally:
        await cluster.__aexit__()


def tell_scale(plan: ClusterPlan, console: Console) -> None:
    """What a large cluster does otherwise, and whether this machine lets it open enough files."""
    for setting in plan.broker_settings[: len(plan.broker_settings) - len(plan.settings)]:
        console.print(f"{setting} for the brokers, because there are many; --override says otherwise")
    needed = descriptors_needed(len(plan.brokers), max(len(group) for group in plan.groups))
    _, allowed = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed != resource.RLIM_INFINITY and needed > allowed:
        console.print(
            f"[bold]a broker process may come to need {needed} open files, and the limit is {allowed}[/]: when every "
            f"broker follows every other, connections will be refused; raise it (ulimit -Hn {needed}) or use more "
            f"processes (--broker-processes {min(len(plan.brokers), 2 * len(plan.groups))})"
        )


def descriptors_needed(brokers: int, in_one_process: int) -> int:
    """Open files of a process with so many of the brokers, when each follows each, and some for clients and logs."""
    return 2 * in_one_process * (brokers - 1) + 10 * in_one_process + 256


async def _tell_ends(cluster: Cluster, console: Console) -> None:
    """One line whenever a process ends or runs again; ZooKeeper is started again. Until cancelled."""
    alive = set(cluster.children)
    while True:
        if not cluster.is_zookeeper_up:
            console.print("ZooKeeper ended; starting it again (until then nothing can change in the cluster)")
            try:
                await cluster.restart_zookeeper()
                console.print("ZooKeeper runs again")
            except ClusterError as error:
                console.print(f"ZooKeeper does not start: {error}")
        now = {name for name, child in cluster.children.items() if child.is_alive}
        for name in sorted(alive ^ now):
            console.print(f"{name} {'runs again' if name in now else 'ended'}")
        if alive != now:
            cluster.write_file()
        alive = now
        await asyncio.sleep(_WATCH_S)


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


def _count(least: int, most: int) -> Any:
    def number(text: str) -> int:
        if not text.isascii() or not text.isdigit() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least} to {most}")
        return int(text)

    return number


# -- down --------------------------------------------------------------------------------------------------------------


def down_main(argv: Sequence[str]) -> int:
    """`kwob down`. Returns the exit code: 0 when nothing runs in the folder any more."""
    parser = argparse.ArgumentParser(prog="kwob down", description="Ends the cluster that runs in a data folder.")
    parser.add_argument("--data", type=Path, default=DEFAULT_DATA, metavar="DIR", help="default: %(default)s")
    options = parser.parse_args(argv)
    try:
        read_cluster(options.data)
        _end(options.data)
    except ClusterError as error:
        print(f"kwob down: {error}", file=sys.stderr)
        return 1
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


def lock_owner(lock_path: Path) -> int | None:
    """The process that holds a data folder's lock, None if nobody does. Raises: ClusterError, if it left no id."""
    try:
        with lock_path.open("r+") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                text = lock.read().strip()
                if not text.isdigit():
                    raise ClusterError(f"{lock_path} is locked by an unknown process") from None
                return int(text)
    except FileNotFoundError:
        return None
    return None
