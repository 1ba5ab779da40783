"""`kwob status`: what runs in a data folder, what ZooKeeper says of it, and what is wrong."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import socket
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import Field
from rich.table import Column, Table

from controller.local.cluster_file import BrokerRow, ClusterError, ClusterRow, halting_faults, read_cluster
from controller.local.fault_file import now_ms, read_faults, state_of
from controller.local.flags import (
    EXIT_FAILED,
    add_data,
    headed,
    make_parser,
    plain_console,
    plural,
    print_table,
    with_data,
)
from controller.local.throttles import ThrottleRow, forgotten_throttles
from controller.wire.fault_rows import FAULT_FILE, Fault, FaultError
from controller.wire.types import Broker as RegisteredBroker
from controller.wire.types import BrokerId
from controller.wire.zk_operations import GetChildren, GetData, ZkResult, ZkSessionExpired, ZkUnreachable
from controller.wire.znode_json import ZnodeError
from controller.wire.znodes import BrokerIdsZNode, BrokerIdZNode, ControllerZNode
from controller.world.real import logs

_ZK_ANSWER_S: Final = 3.0


class StatusRow(ClusterRow):
    """A cluster as it is now. In its JSON, what follows is there only when there is some."""

    forgotten_throttles: list[ThrottleRow] = Field(default_factory=list)
    #: what keeps the cluster from working, one sentence each
    problems: list[str] = Field(default_factory=list)
    #: brokers of the cluster that `kwob up` did not start
    others: list[BrokerRow] = Field(default_factory=list)
    #: how many faults are in force
    faults: int = 0

    def to_json(self) -> str:
        """What `kwob status --json` prints."""
        extra = ("forgotten_throttles", "problems", "others", "faults")
        return self.model_dump_json(exclude={name for name in extra if not getattr(self, name)})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
    """What ZooKeeper says: the active controller, the registered brokers, the throttles that nobody needs."""

    active: int | None
    brokers: dict[int, RegisteredBroker]
    throttles: list[ThrottleRow]


async def _from_zookeeper(zookeeper: str, bootstrap: str) -> _Told:
    """Raises: ZkUnreachable, ZkSessionExpired, TimeoutError."""
    from controller.world.real.zookeeper import KazooConnector

    connector = KazooConnector(zookeeper, connect_timeout_s=_ZK_ANSWER_S)
    async with asyncio.timeout(2 * _ZK_ANSWER_S):
        session = await connector.connect(on_watch=lambda event: None, on_expired=lambda: None)
        try:
            office, listed = await session.perform([GetData(ControllerZNode.path), GetChildren(BrokerIdsZNode.path)])
            ids = BrokerIdsZNode.ids(listed.children) if listed.ok else []
            found = await session.perform([GetData(BrokerIdZNode.path(broker_id)) for broker_id in ids]) if ids else []
            return _Told(
                active=ControllerZNode.decode(office.data) if office.ok else None,
                brokers=dict(_registered(zip(ids, found, strict=True))),
                throttles=await forgotten_throttles(session, bootstrap),
            )
        finally:
            await session.close()


def _registered(rows: Iterable[tuple[BrokerId, ZkResult]]) -> Iterator[tuple[int, RegisteredBroker]]:
    for broker_id, result in rows:
        with contextlib.suppress(ZnodeError):
            if result.ok:
                yield broker_id, BrokerIdZNode.decode(broker_id, result.data)


def status(data: Path) -> StatusRow:
    """The cluster of a data folder as it is now. Raises: ClusterError."""
    row = StatusRow(**read_cluster(data).model_dump())
    if all(pid is None for pid in [*(c.pid for c in row.controllers), *(b.pid for b in row.brokers)]):
        return row
    row.faults = sum(state_of(fault, now_ms()).startswith("in force") for fault in _faults(data))
    host, _, port = row.zookeeper.partition("/")[0].rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=_ZK_ANSWER_S).close()
        answers = asyncio.run(_from_zookeeper(row.zookeeper, row.bootstrap))
    except (OSError, ZkUnreachable, ZkSessionExpired):
        row.problems = [f"ZooKeeper at {row.zookeeper} does not answer: no controller can act, nothing can change"]
        return row
    row.forgotten_throttles = answers.throttles
    for controller in row.controllers:
        controller.active = controller.pid is not None and controller.id == answers.active
    if answers.active is None:
        row.problems.append("no controller is active: leaders, topics and ISRs cannot change")
    ours = {broker.id for broker in row.brokers}
    row.others = [
        BrokerRow(id=i, pid=None, rack=other.rack, listener=f"{e.host}:{e.port}", log_dirs=[])
        for i, other in sorted(answers.brokers.items())
        for e in other.endpoints[:1]
        if i not in ours
    ]
    row.problems += [
        text for b in row.brokers if b.pid is not None and (text := _trouble(data, b, answers)) is not None
    ]
    return row


def _trouble(data: Path, broker: BrokerRow, answers: _Told) -> str | None:
    """What is wrong with a broker whose process runs. One that has halted may share it with others, and is registered
    until its session ends."""
    if names := halting_faults(data, broker.id, broker.rack, list(map(Path, broker.log_dirs))):
        end = with_data(f"kwob fault clear {' '.join(names)}", data)
        return f"broker {broker.id} has halted, since all its log directories fail; its process runs on; next: {end}"
    if broker.id not in answers.brokers:
        return f"broker {broker.id} runs and is not registered: the controller takes it for dead"
    return None


def _faults(data: Path) -> tuple[Fault, ...]:
    try:
        return read_faults(data / FAULT_FILE)
    except (FaultError, OSError):
        return ()


def command_line() -> argparse.ArgumentParser:
    """The parser."""
    parser = make_parser(
        "kwob status",
        "What runs in a data folder, and what is wrong with it.",
        examples=["kwob status", "kwob status --json"],
        exit_codes="0 told; 1 there is no cluster, or what runs has no ZooKeeper or no active controller",
    )
    add_data(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object, for scripts")
    return parser


def main(argv: Sequence[str]) -> int:
    """`kwob status`. Returns the exit code (see --help)."""
    parser = command_line()
    options = parser.parse_args(argv)
    logs.configure("status", level="error")
    try:
        row = status(options.data)
    except ClusterError as error:
        print(f"kwob status: {error}", file=sys.stderr)
        return EXIT_FAILED
    if options.json:
        print(row.to_json())
    else:
        show(row, options.data.resolve())
    return EXIT_FAILED if row.problems else 0


def show(row: StatusRow, data: Path) -> None:
    """The status for people."""
    table = Table(
        "process", "pid", "state", "rack", "listener", Column("log dirs", overflow="fold"), box=None, pad_edge=False
    )
    for controller in row.controllers:
        state = "active" if controller.active else "standby"
        table.add_row(f"controller {controller.id}", *_pid(controller.pid, state), "", "", "")
    for broker in row.brokers:
        dirs = ", ".join(str(_below(data, log_dir)) for log_dir in broker.log_dirs)
        table.add_row(f"broker {broker.id}", *_pid(broker.pid, "running"), broker.rack or "", broker.listener, dirs)
    for other in row.others:
        table.add_row(f"broker {other.id}", "-", "not of kwob up", other.rack or "", other.listener, "")
    console = plain_console()
    console.print(f"bootstrap {row.bootstrap}\nzookeeper {row.zookeeper}\ndata      {data}")
    print_table(table, console)
    for problem in row.problems:
        console.print(headed("problem", problem, "bold red"))
    if row.faults:
        console.print(f"{plural(row.faults, 'fault')} in force: {with_data('kwob fault list', data)}")
    if row.forgotten_throttles:
        console.print()
        console.print(
            headed("forgotten throttles", "nothing is being moved, and these still limit replication", "yellow")
        )
        throttles = Table("where", "throttle", "value", box=None, pad_edge=False)
        for throttle in row.forgotten_throttles:
            throttles.add_row(throttle.entity, throttle.name, throttle.value)
        print_table(throttles, console)
        for command in dict.fromkeys(throttle.remove for throttle in row.forgotten_throttles):
            console.print(f"next: {command}")


def _below(data: Path, path: str) -> Path:
    """As short as it can be told: below the data folder."""
    return Path(path).relative_to(data) if Path(path).is_relative_to(data) else Path(path)


def _pid(pid: int | None, state: str) -> tuple[str, str]:
    return ("-", "not running") if pid is None else (str(pid), state)
