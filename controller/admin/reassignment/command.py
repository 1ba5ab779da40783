"""kafka-reassign-partitions: generate, execute, verify, cancel, list; by brokers, and in 2.x by ZooKeeper.

Source: Kafka 3.9 `ReassignPartitionsCommand`; spec admin.md §3. Moves between log directories need brokers.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from controller.admin.cluster.failures import Refused, Terse, ToolFailure, class_and_message
from controller.admin.cluster.queries import list_reassignments
from controller.admin.reassignment import options_2x
from controller.admin.reassignment.execute import cancel, execute
from controller.admin.reassignment.minimal_moves import minimal
from controller.admin.reassignment.options import ACTIONS, TABLE, check
from controller.admin.reassignment.plan_file import format_plan, parse_broker_list, parse_topics_to_move, plan_value
from controller.admin.reassignment.progress_view import show
from controller.admin.reassignment.proposal import propose
from controller.admin.reassignment.verify import verify
from controller.admin.toolkit.console import Console, commas
from controller.admin.toolkit.kafka_json import read_file
from controller.admin.toolkit.options import Arguments
from controller.admin.toolkit.texts import Texts
from controller.admin.toolkit.tool import Run, Tool, Way, uncaught
from controller.rules.placement import RackMode, usable_brokers
from controller.wire.errors import KafkaError
from controller.wire.types import ReplicaAssignment, TopicPartition

_IGNORED: Final = (
    "Warning: ignoring deprecated --zookeeper option because --bootstrap-server was specified.  The --zookeeper option "
    "will be removed in a future version of Kafka."
)


async def perform(run: Run) -> int:
    """Does the one action asked for. Raises ToolFailure, KafkaError."""
    if not run.cluster.moves_log_dirs:
        for line in run.zookeeper_texts.reassign_first:
            run.console.line(line)
    elif run.args.has("zookeeper"):
        run.console.line(_IGNORED)
    action = next(name for name in ACTIONS if run.args.has(name))
    actions = {"generate": generate, "execute": execute, "verify": verify, "cancel": cancel, "list": list_running}
    await actions[action](run)
    return 0


async def generate(run: Run) -> None:
    """`--generate`: prints where the partitions are and where they might go; changes nothing.

    Each topic gets the replication factor of its partition 0 (Kafka takes that of any partition). Brokers that are
    not alive are left out.
    """
    args = run.args
    text = read_file(args.value("topics-to-move-json-file") or "")
    ids = parse_broker_list(args.value("broker-list") or "", run.texts)
    topics = parse_topics_to_move(text, run.texts)
    mode = RackMode.DISABLED if args.has("disable-rack-aware") else RackMode.ENFORCED
    current = await run.cluster.replicas_to_move(topics)
    racks = [broker for broker in await run.cluster.brokers() if broker.broker_id in ids]
    try:
        brokers = usable_brokers(racks, mode)
    except KafkaError as error:
        raise ToolFailure(str(error), java_class="org.apache.kafka.server.common.AdminOperationException") from error
    proposed = propose(current, brokers, run.machine.chance, in_stripes=run.texts.places_in_stripes)
    if args.value("strategy") == "minimal":
        proposed = minimal(current, brokers, proposed)
    run.console.line(f"Current partition replica assignment\n{format_plan(current)}\n")
    run.console.line(f"Proposed partition reassignment configuration\n{format_plan(proposed)}")
    run.console.result({"current": plan_value(current), "proposed": plan_value(proposed)})


async def list_running(run: Run) -> None:
    """`--list`: every partition that is being reassigned."""
    running = await list_reassignments(run.admin)
    run.console.line(format_running(running))
    run.console.result(
        {
            "reassignments": [
                {
                    "topic": partition.topic,
                    "partition": partition.partition,
                    "replicas": list(r.replicas),
                    "adding_replicas": list(r.adding_replicas),
                    "removing_replicas": list(r.removing_replicas),
                }
                for partition, r in running.items()
            ]
        }
    )
    if running and run.args.has("progress"):
        await show(run, list(running), added={p: frozenset(r.adding_replicas) for p, r in running.items()})


def format_running(running: dict[TopicPartition, ReplicaAssignment]) -> str:
    """The text of `--list`."""
    if not running:
        return "No partition reassignments found."
    lines = ["Current partition reassignments:"]
    for partition, r in sorted(running.items()):
        line = f"{partition}: replicas: {commas(r.replicas)}."
        if r.adding_replicas:
            line += f" adding: {commas(r.adding_replicas)}."
        if r.removing_replicas:
            line += f" removing: {commas(r.removing_replicas)}."
        lines.append(line)
    return "\n".join(lines)


def say_failed(texts: Texts, console: Console, error: Exception, _args: Arguments) -> None:
    """On standard output; a terse failure is its message, any other is followed by its exception.

    What the cluster refused came out of a future, and its exception is wrapped accordingly.
    """
    if isinstance(error, Terse):
        console.line(str(error))
        return
    message = error.prefixed if isinstance(error, Refused) else str(error)
    console.line(f"{texts.reassign_failed} {message}")
    wrapper = "java.util.concurrent.ExecutionException: " if isinstance(error, Refused) else ""
    console.line(wrapper + class_and_message(error))


def tool_of(texts: Texts, _argv: Sequence[str]) -> Tool:
    """The tool of a version."""
    way = Way(perform=perform, say_failed=partial(say_failed, texts), failed_exit=texts.reassign_failed_exit)
    older = texts.zookeeper is not None
    return Tool(
        table=options_2x.table(texts) if older else TABLE,
        check=partial(options_2x.check if older else check, texts),
        by_brokers=way if texts.asks_brokers else None,
        by_zookeeper=way if older else None,
        say_unparsed=uncaught,
        no_arguments=None if texts.asks_brokers else options_2x.DESCRIPTION_20,
        client_id="reassign-partitions-tool",
        catches_client=True,
        texts=texts,
    )
