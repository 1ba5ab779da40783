"""Scripts: a command, `----`, and everything that came out. `KWOB_REWRITE=1 pytest tests/unit/core/test_scripts.py`
writes the output anew; commit that only if the reason for each changed line is known.

What was asked for besides, in order, is in a file of its own for each (`said/`; `tests.worlds.asked` has the words):
what was read and is watched, log lines, rows of the trace, timers, channels, and requests with all their fields.

Several commands may stand before one `----`; they happen in one go. `quietly` drops their output.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from controller.core import events
from controller.core.effects import PartitionOutcome
from controller.core.events import ElectionTrigger, ElectionType
from controller.wire.errors import ErrorCode
from controller.wire.types import BrokerId, TopicPartition
from controller.wire.zk_operations import Create, Delete, Exists, GetChildren, GetData, SetData, ZkCode
from controller.wire.znodes import (
    IsrChangeNotificationZNode,
    LogDirEventNotificationZNode,
    ReassignPartitionsZNode,
    encode_partitions,
)
from tests.worlds.asked import Recorded

SCRIPTS = Path(__file__).parents[2] / "scripts"
SAID = SCRIPTS / "said"


def partition(text: str) -> TopicPartition:
    topic, _, number = text.rpartition("-")
    return TopicPartition(topic, int(number))


def replicas(text: str) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(int(r)) for r in text.split(",")) if text else ()


def pairs(words: list[str]) -> dict[str, str]:
    return dict(word.split("=", 1) for word in words)


def command(world: Any, line: str) -> None:
    """One command; see the table for what there is."""
    verb, *words = line.split()
    targets = (
        {partition(k): None if v == "none" else replicas(v) for k, v in pairs(words).items()} if verb in MOVES else {}
    )
    numbers = [int(w) for w in words] if verb in NUMBERS else []
    match verb:
        case "start":
            world.events.append(world.startup)
        case "new-controller":
            world.new_controller()
        case "brokers-start":
            world.broker_starts(*numbers)
        case "brokers-die":
            world.broker_dies(*numbers)
        case "topic":
            world.topic(words[0], **{f"p{k}": replicas(v) for k, v in pairs(words[1:]).items()})
        case "delete-topic":
            world.make(f"/admin/delete_topics/{words[0]}")
        case "config":
            world.make(f"/config/topics/{words[0]}", words[1].encode())
        case "set":
            world.others_write(SetData(words[0], words[1].encode()))
        case "delete":
            assert world.others_write(Delete(words[0])).ok
        case "isr":
            for name, isr in pairs(words).items():
                world.leader_writes(partition(name), replicas(isr))
        case "notify":
            data = encode_partitions(partition(w) for w in words)
            world.others_write(Create(IsrChangeNotificationZNode.sequence_path, data, sequence=True))
        case "log-dir-fails":
            world.failed_dirs[int(words[0])] = {partition(w) for w in words[1:]}
            data = LogDirEventNotificationZNode.encode(BrokerId(int(words[0])))
            world.others_write(Create(LogDirEventNotificationZNode.sequence_path, data, sequence=True))
        case "reassign":
            world.events.append(events.ApiPartitionReassignment(targets, 1))
        case "reassign-by-znode":
            world.make(ReassignPartitionsZNode.path, ReassignPartitionsZNode.encode(targets))
        case "list":
            world.events.append(events.ListPartitionReassignments(None, 1))
        case "prefer" | "elect-unclean":
            kind = ElectionType.PREFERRED if verb == "prefer" else ElectionType.UNCLEAN
            asked = frozenset(partition(w) for w in words)
            world.events.append(events.ReplicaLeaderElection(asked, kind, ElectionTrigger.ADMIN_CLIENT, 1))
        case "prefer-by-znode":
            world.make("/admin/preferred_replica_election", encode_partitions(partition(w) for w in words))
        case "balance":
            world.events.append(events.AutoPreferredReplicaLeaderElection())
        case "shutdown":
            number, epoch = [*numbers, -1][:2]
            world.events.append(events.ControlledShutdown(BrokerId(number), epoch, 1))
        case "unclean-enabled":
            world.events.append(events.TopicUncleanLeaderElectionEnable(words[0]))
        case "silence":
            world.silent.update(numbers)
        case "release":
            world.release(numbers[0])
        case "make":
            world.make(words[0], words[1].encode() if words[1:] else None)
        case "refuse":
            world.refused.append((OPERATIONS[words[0]], words[1], ZkCode[words[2]] if words[2:] else ZkCode.NO_AUTH))
        case "allow":
            world.refused.clear()
        case "time-passes":
            waiting, world.timers = world.timers, []
            world.now_ms += max((timer.after_ms for timer in waiting), default=0)
            world.events.extend(timer.event for timer in waiting)
        case "session-expires":
            world.end_session(world.session)
            world.events.append(events.Expire())
        case "session-begins":
            world.new_session()
            world.events.append(events.RegisterBrokerAndReelect(world.session))
        case "rival":
            world.rival_wins(*numbers)
        case "answer":
            world.events.append(answer(BrokerId(int(words[1])), words[0], words[2:]))
        case "default-of-unclean":
            world.events.append(events.UncleanLeaderElectionEnable(words[0] == "true"))
        case "with":
            world.settings = replace(
                world.settings, **{name: json.loads(value) for name, value in pairs(words).items()}
            )
            world.new_controller()
        case _:
            raise ValueError(f"no such command: {line}")


MOVES = ("reassign", "reassign-by-znode")
NUMBERS = ("brokers-start", "brokers-die", "shutdown", "silence", "release", "rival")
OPERATIONS = {"get": GetData, "exists": Exists, "list": GetChildren, "create": Create, "set": SetData, "delete": Delete}


def answer(broker: BrokerId, request: str, words: list[str]) -> events.Event:
    """`answer LeaderAndIsr 1 NONE t-0=KAFKA_STORAGE_ERROR`: what a broker says of a request, and of partitions."""
    error, errors = ErrorCode[words[0]], {partition(k): ErrorCode[v] for k, v in pairs(words[1:]).items()}
    match request:
        case "LeaderAndIsr":
            return events.LeaderAndIsrResponseReceived(broker, error, errors)
        case "StopReplica":
            return events.TopicDeletionStopReplicaResponseReceived(broker, error, errors)
    return events.UpdateMetadataResponseReceived(broker, error)


def reply_text(reply: Any) -> list[str]:
    """An answer, a line per partition."""
    lines = [f"reply {reply.error.name}"] if hasattr(reply, "error") else []
    for tp, outcome in getattr(reply, "partitions", {}).items():
        if isinstance(outcome, PartitionOutcome):
            leader = "" if outcome.leader is None else f" leader={outcome.leader}"
            lines.append(f"reply {tp} {outcome.error.name}{leader}")
        else:
            lines.append(f"reply {tp} {outcome.replicas} {outcome.adding_replicas} {outcome.removing_replicas}")
    if remaining := getattr(reply, "remaining", ()):
        lines.append(f"reply remaining {' '.join(map(str, remaining))}")
    return lines


def play(world: Any, commands: list[str]) -> tuple[list[str], list[str]]:
    """What came out of these commands, and what was asked for besides."""
    for line in commands:
        command(world, line.removeprefix("quietly "))
        if line.startswith("quietly "):
            world.run()
            world.take_lines()
            world.replies.clear()
    world.run()
    lines = [*world.take_lines(), *(text for reply in world.replies.values() for text in reply_text(reply))]
    world.replies.clear()
    return lines, world.take_asked()


def blocks(text: str) -> list[tuple[str, list[str], list[str]]]:
    """(comment, commands, output) of each block."""
    found = []
    for block in text.strip().split("\n\n"):
        head, _, output = block.partition("\n----")
        comment = "".join(f"{line}\n" for line in head.splitlines() if line.startswith("#"))
        commands = [line for line in head.splitlines() if not line.startswith("#")]
        found.append((comment, commands, output.strip("\n").splitlines()))
    return found


def written(played: Iterable[tuple[str, list[str], list[str]]]) -> str:
    """The text whose `blocks` these are."""
    texts = [f"{comment}{chr(10).join(commands)}\n----\n{chr(10).join(output)}" for comment, commands, output in played]
    return "\n\n".join(text.rstrip() for text in texts) + "\n"


@pytest.mark.parametrize("script", sorted(SCRIPTS.glob("*.txt")), ids=lambda path: path.stem)
def test_script(script: Path) -> None:
    world = Recorded()
    todo = blocks(script.read_text())
    played = [(comment, commands, *play(world, commands)) for comment, commands, _ in todo]
    came_out = [(comment, commands, lines) for comment, commands, lines, _ in played]
    was_said = [("", commands, lines) for _, commands, _, lines in played]
    if os.environ.get("KWOB_REWRITE"):
        script.write_text(written(came_out))
        (SAID / script.name).write_text(written(was_said))
        return
    assert came_out == todo
    assert was_said == blocks((SAID / script.name).read_text())
