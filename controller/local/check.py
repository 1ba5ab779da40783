"""`kwob wait` and `kwob check`: any cluster, as its brokers tell of it; one of `kwob up` also as ZooKeeper has it."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from controller.admin.checks import statements
from controller.admin.checks.conditions import Condition, wait_until
from controller.admin.checks.statements import Check
from controller.admin.checks.truth import EpochHistory, Truth, read_truth, truth_of
from controller.admin.cluster.client import AdminClient
from controller.admin.cluster.failures import ClusterUnreachable, Refused, ToolFailure
from controller.admin.cluster.queries import list_reassignments
from controller.local.cluster_file import CLUSTER_FILE, ClusterError, read_cluster
from controller.local.flags import EXIT_FAILED, EXIT_USAGE, add_data, make_parser, seconds
from controller.wire.errors import KafkaError
from controller.wire.protocol import ApiKey
from controller.wire.types import BrokerId, TopicPartition
from controller.wire.zk_operations import (
    GetChildren,
    GetData,
    ZkReadOp,
    ZkRefused,
    ZkSessionExpired,
    ZkUnreachable,
    found_or_missing,
)
from controller.wire.znode_json import ZnodeError
from controller.wire.znodes import DeleteTopicsZNode, PreferredReplicaElectionZNode, ReassignPartitionsZNode
from controller.world.ports import ZkSession
from controller.world.real import logs
from controller.world.real.net import TcpNetwork

_LOOK_S: Final = 0.3
_ANSWER_S: Final = 2.0


def _parser(prog: str, what: str, examples: Sequence[str], exit_codes: str, timeout: str) -> argparse.ArgumentParser:
    parser = make_parser(prog, what, examples=examples, exit_codes=exit_codes)
    parser.add_argument("--bootstrap-server", metavar="H:P[,H:P]", help="default: the cluster of the data folder")
    add_data(parser)
    parser.add_argument(
        "--topic", action="append", default=[], metavar="T[,T]", help="only these topics (default: all)"
    )
    parser.add_argument("--timeout", type=seconds, default=seconds(timeout), metavar="TIME", help=f"default: {timeout}")
    return parser


def _bootstrap(options: argparse.Namespace) -> str:
    """Raises: ClusterError."""
    given: str | None = options.bootstrap_server
    return read_cluster(options.data).bootstrap if given is None else given


def _topics(options: argparse.Namespace) -> list[str]:
    return [name for text in options.topic for name in text.split(",") if name]


# -- wait --------------------------------------------------------------------------------------------------------------


def wait_main(argv: Sequence[str]) -> int:
    """`kwob wait`. Returns the exit code (see --help)."""
    options = wait_command_line().parse_args(argv)
    names = [name for name in options.until.split(",") if name]
    if not names or not set(names) <= set(Condition):
        print(f"kwob wait: --until {options.until!r}: there are {', '.join(Condition)}", file=sys.stderr)
        return EXIT_USAGE
    try:
        missing = asyncio.run(_wait(_bootstrap(options), [Condition(name) for name in names], options))
    except (ClusterError, ToolFailure) as error:
        missing = str(error)
    if missing is not None:
        print(f"kwob wait: {missing}", file=sys.stderr)
        return EXIT_FAILED
    return 0


def wait_command_line() -> argparse.ArgumentParser:
    """The parser."""
    parser = _parser(
        "kwob wait",
        "Waits until a cluster is as it should be: full-isr (every replica in sync), leader (every partition has one), "
        "no-moves (nothing is being reassigned), as every broker tells it.",
        ["kwob wait --until full-isr", "kwob wait --until leader,no-moves --topic orders --timeout 2m"],
        "0 it is; 1 it is not within the time, or cannot be told; 2 wrong arguments",
        "60s",
    )
    parser.add_argument("--until", required=True, metavar="WHAT[,WHAT]", help=", ".join(Condition))
    return parser


async def _wait(bootstrap: str, conditions: Sequence[Condition], options: argparse.Namespace) -> str | None:
    async with AdminClient(TcpNetwork(), bootstrap) as admin:
        missing = await wait_until(admin, conditions, topics=_topics(options), timeout_s=options.timeout)
    return None if missing is None else f"not within {options.timeout:g} s: {missing}"


# -- check -------------------------------------------------------------------------------------------------------------


def check_main(argv: Sequence[str]) -> int:
    """`kwob check`. Returns the exit code (see --help)."""
    options = check_command_line().parse_args(argv)
    logs.configure("check", level="error")
    try:
        found = asyncio.run(_check(options))
    except (ClusterError, ToolFailure, KafkaError, ZnodeError, ZkUnreachable, ZkSessionExpired, ZkRefused) as error:
        print(f"kwob check: {error}", file=sys.stderr)
        return EXIT_FAILED
    holds = all(check.holds for check in found)
    if options.json:
        rows = [{"statement": c.statement, "holds": c.holds, "detail": c.detail} for c in found]
        print(json.dumps({"holds": holds, "statements": rows}))
    else:
        for check in found:
            print(f"{'ok  ' if check.holds else 'NOT '} {check.statement}: {check.detail}")
    return 0 if holds else EXIT_FAILED


def check_command_line() -> argparse.ArgumentParser:
    """The parser."""
    parser = _parser(
        "kwob check",
        "Looks at a cluster from outside and says which statements hold. What brokers are told late (an ISR some "
        "seconds after its change) is waited for, until --timeout.",
        ["kwob check", "kwob check --bootstrap-server kafka-1:9092 --topic orders --json"],
        "0 all statements hold; 1 one does not, or the cluster cannot be looked at; 2 wrong arguments",
        "15s",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object, for scripts")
    return parser


async def _check(options: argparse.Namespace) -> list[Check]:
    """Looks until all hold, or the time is over."""
    bootstrap, topics = _bootstrap(options), _topics(options)
    limit_s = time.monotonic() + options.timeout
    history = EpochHistory()
    async with AdminClient(TcpNetwork(), bootstrap) as admin, _zookeeper(options) as zk:
        while True:
            found = await _look(admin, zk, topics, history)
            if all(check.holds for check in found) or time.monotonic() > limit_s:
                return found
            await asyncio.sleep(_LOOK_S)


@asynccontextmanager
async def _zookeeper(options: argparse.Namespace) -> AsyncIterator[ZkSession | None]:
    """A session with the ZooKeeper of the data folder's cluster; None for a cluster named by its brokers."""
    folder: Path = options.data
    if options.bootstrap_server is not None or not (folder / CLUSTER_FILE).exists():
        yield None
        return
    from controller.world.real.zookeeper import KazooConnector

    connector = KazooConnector(read_cluster(folder).zookeeper, connect_timeout_s=_ANSWER_S)
    session = await connector.connect(on_watch=lambda event: None, on_expired=lambda: None)
    try:
        yield session
    finally:
        await session.close()


async def _look(admin: AdminClient, zk: ZkSession | None, topics: Sequence[str], history: EpochHistory) -> list[Check]:
    answers = await _answers(admin)
    if zk is not None:
        truth, source = await read_truth(zk), "ZooKeeper"
    elif answers:
        first = min(answers)
        truth, source = truth_of(answers[first], frozenset(await admin.brokers())), f"broker {first}"
    else:
        raise ToolFailure("no broker answers")
    history.note(truth)
    answered, left = await _moving(admin), None if zk is None else await leftovers(zk)
    return [*judged(truth, source, answers, topics, moves=answered, left=left), statements.check_falls(history)]


def judged(
    truth: Truth,
    source: str,
    answers: Mapping[BrokerId, Any],
    topics: Collection[str],
    *,
    moves: Collection[TopicPartition] | None,
    left: Sequence[str] | None,
) -> list[Check]:
    """What one look shows. `moves`: what moves, as the controller tells it (None: it does not). `left`: the znodes
    below /admin, None where only brokers were asked; else ZooKeeper says what moves, too."""
    kept = truth.only(topics) if topics else truth
    moving = moves if left is None else [tp for tp, p in kept.partitions.items() if p.assignment.is_being_reassigned]
    if moving is not None:
        moving = [tp for tp in moving if not topics or tp.topic in topics]
    return [
        statements.check_controller(answers=moves is not None),
        statements.check_partitions(kept, topics, may_be_empty=True),
        statements.check_views(truth, answers, source),
        statements.check_moves(moving),
        *([] if left is None else [statements.check_admin(left)]),
    ]


async def _answers(admin: AdminClient) -> dict[BrokerId, Any]:
    """Each broker's answer to Metadata for all topics; without those that do not answer."""
    brokers = sorted(await admin.brokers())
    given = await asyncio.gather(*(_answer(admin, broker_id) for broker_id in brokers))
    return {broker_id: answer for broker_id, answer in zip(brokers, given, strict=True) if answer is not None}


async def _answer(admin: AdminClient, broker_id: BrokerId) -> Any:
    body = {"topics": None, "allow_auto_topic_creation": False}
    try:
        async with asyncio.timeout(_ANSWER_S):
            return await admin.call_broker(broker_id, ApiKey.METADATA, body)
    except (Refused, ClusterUnreachable, TimeoutError):
        return None


async def _moving(admin: AdminClient) -> list[TopicPartition] | None:
    """The partitions being reassigned; None when no controller answers."""
    try:
        async with asyncio.timeout(_ANSWER_S):
            return list(await list_reassignments(admin))
    except (Refused, ClusterUnreachable, TimeoutError):
        return None


async def leftovers(zk: ZkSession) -> list[str]:
    """Znodes below /admin that ask for something still to be done. Raises: ZkSessionExpired, ZkRefused."""
    single = (ReassignPartitionsZNode.path, PreferredReplicaElectionZNode.path)
    ops: list[ZkReadOp] = [GetChildren(DeleteTopicsZNode.path), *map(GetData, single)]
    deleted, *others = found_or_missing(ops, await zk.perform(ops))
    left = [f"{DeleteTopicsZNode.path}/{name}" for name in deleted.children]
    return left + [path for path, found in zip(single, others, strict=True) if found.ok]
