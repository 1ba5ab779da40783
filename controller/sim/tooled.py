"""The tool that moves replicas, run by an administrator in a simulated world, on a topic of its own.

What it leaves in ZooKeeper is judged there: throttles are set before anything moves, on all that it concerns, and are
gone once it says so; what it says of a move is so. Where others have moved that topic, or have set rates, what they may
have changed is not judged. Source: spec admin.md §3.5 to §3.8; Kafka 3.9 `ReassignPartitionsCommand`.
"""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from controller.admin.commands import reassign_partitions
from controller.admin.toolkit.machine import Machine
from controller.sim.cluster import Cluster
from controller.sim.history import parsed
from controller.sim.operations import alter_configs
from controller.sim.oracles.throttles import (
    Throttles,
    forgotten_are_not_needed,
    rates_left,
    throttled_topics,
    topic_throttles,
)
from controller.sim.programs import BROKER_PORT
from controller.sim.shape import TOOLED
from controller.sim.turn import NothingThere, Turn
from controller.wire.protocol import ApiKey

#: Bytes a second: moves take effect at once, or take a while.
RATES: Final = ("300", "5000", "1000000")
#: How long an administrator waits for a tool, and how often it is asked whether all is done.
PATIENCE_S: Final = 30.0
VERIFIED_AT_MOST: Final = 40
_OWN: Final = "what leads back"


@dataclass(slots=True)
class _Desk:
    """One administrator: its files, and what it has asked for."""

    turn: Turn
    folder: Path
    notes: list[str]
    throttles: Throttles

    @property
    def cluster(self) -> Cluster:
        return self.turn.cluster

    async def run(self, *argv: str) -> tuple[int, dict[str, Any]] | None:
        """(exit code, result) of the tool; None when it took too long."""
        cluster, out = self.cluster, io.StringIO()
        servers = ",".join(f"{self.turn.name(number)}:{BROKER_PORT}" for number in cluster.broker_ids)
        desk = cluster.world.machine("administrator")
        machine = Machine(network=desk.network, clock=desk.clock, chance=self.turn.chance, out=out, err=io.StringIO())
        words = [*argv, "--json", "--bootstrap-server", servers]
        try:
            code = await asyncio.wait_for(reassign_partitions(words, machine), PATIENCE_S)
        except TimeoutError:
            self.notes.append(f"{argv[0]}: no end")
            return None
        self.notes.append(f"{' '.join(argv[:1])}{' --additional' * ('--additional' in argv)}: {code}")
        return code, parsed(out.getvalue().encode()) or {}

    def plan(self, targets: dict[int, list[int]]) -> str:
        """A file of these moves; its path."""
        rows = [{"topic": TOOLED, "partition": number, "replicas": ids} for number, ids in sorted(targets.items())]
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"plan-{len(list(self.folder.iterdir()))}.json"
        path.write_text(json.dumps({"version": 1, "partitions": rows}), encoding="utf-8")
        return str(path)

    def rewrite(self, path: str) -> bool:
        """Writes something of its own over a file; False when there is none."""
        if not Path(path).exists():
            return False
        Path(path).write_text(_OWN, encoding="utf-8")
        return True

    def is_as_rewritten(self, path: str) -> bool:
        """Whether that is in it still."""
        return Path(path).read_text(encoding="utf-8") == _OWN

    def new_path(self, name: str) -> str:
        """That of a file which is not there."""
        return str(self.folder / f"{name}-{len(list(self.folder.iterdir()))}")

    def targets(self, partitions: Sequence[int]) -> dict[int, list[int]]:
        """New replicas of these, drawn among those that are registered."""
        alive, chance = sorted(self.cluster.registered()), self.turn.chance
        return {number: chance.sample(alive, min(len(alive), chance.choice((1, 2, 3)))) for number in partitions}

    def wrong(self, text: str) -> None:
        """Notes what must not be."""
        self.cluster.contradictions.append(text)


async def administer(turn: Turn) -> str:
    """A throttled reassignment by the tool, watched, added to, or cancelled, until nothing of it is left."""
    cluster = turn.cluster
    if cluster.is_administered:
        raise NothingThere
    cluster.is_administered = True
    try:
        return await _administer(turn)
    finally:
        cluster.is_administered = False


async def _administer(turn: Turn) -> str:
    cluster = turn.cluster
    if not await _topic_is_there(turn):
        raise NothingThere
    throttles = Throttles(cluster)
    desk = _Desk(turn, cluster.folder / "administrator", [], throttles)
    cluster.world.zookeeper.on_operation.append(throttles.operation)
    try:
        await _course(desk)
    finally:
        cluster.world.zookeeper.on_operation.remove(throttles.operation)
    return ", ".join(desk.notes)


async def _course(desk: _Desk) -> None:
    turn, cluster = desk.turn, desk.cluster
    numbers = cluster.topic_partitions(TOOLED)
    first = desk.targets(numbers[: turn.chance.choice((1, len(numbers)))])
    if not numbers or not all(first.values()):
        raise NothingThere
    plan, rate = desk.plan(first), turn.chance.choice(RATES)
    if turn.chance.random() < 0.4:
        await _dry(desk, plan, rate)
    rollback = desk.new_path("rollback")
    await _execute(desk, plan, rate, "--rollback-json-file", rollback)
    await cluster.world.sleep(turn.chance.choice((0.0, 0.5, 2.0)))
    for bend in turn.chance.sample((_add, _again, _verify_and_keep, _verify_reordered, _cancel), 2):
        await bend(desk, plan, rate, rollback)
        forgotten_are_not_needed(cluster, desk.wrong)
        await cluster.world.sleep(turn.chance.choice((0.0, 0.5, 2.0)))
    for _ in range(VERIFIED_AT_MOST):
        if await _verify(desk, plan):
            return
        forgotten_are_not_needed(cluster, desk.wrong)
        await cluster.world.sleep(1.0)
    for topic, names in throttled_topics(cluster).items():  # a throttle that stays would let no move end
        await alter_configs(turn, 2, topic, dict.fromkeys(names, ""), 1)


async def _topic_is_there(turn: Turn) -> bool:
    """Creates the topic, of two or three partitions."""
    cluster = turn.cluster
    if cluster.topic_partitions(TOOLED):
        return True
    count, factor = turn.chance.choice((2, 3)), turn.chance.choice((1, 2))
    rows = [{"partition_index": number, "broker_ids": turn.replicas(factor)} for number in range(count)]
    row = {"name": TOOLED, "num_partitions": -1, "replication_factor": -1, "assignments": rows, "configs": []}
    await cluster.ask_once(ApiKey.CREATE_TOPICS, 4, {"topics": [row], "timeout": 1_000, "validate_only": False})
    await cluster.world.sleep(1.2)
    return bool(cluster.topic_partitions(TOOLED))


_Bend = Callable[[_Desk, str, str, str], Awaitable[None]]


async def _execute(desk: _Desk, plan: str, rate: str, *options: str) -> int | None:
    """`--execute` with a throttle; without `--additional` it is refused while anything moves."""
    cluster = desk.cluster
    before = cluster.moving()
    desk.throttles.expect(None if "--dry-run" in options else rate)
    ended = await desk.run("--execute", "--reassignment-json-file", plan, "--throttle", rate, *options)
    if ended is None:
        return None
    code, _ = ended
    same = {tp for tp, content in cluster.moving().items() if before.get(tp) == content and tp[0] != TOOLED}
    if code == 0 and same and "--additional" not in options and "--dry-run" not in options:
        desk.wrong(f"a reassignment began beside others, {sorted(same)}, though nobody gave --additional")
    return code


async def _dry(desk: _Desk, plan: str, rate: str) -> None:
    """`--dry-run` changes nothing."""
    writes = desk.throttles.writes
    mark = desk.cluster.moves_of_others, desk.cluster.rates_of_others
    code = await _execute(desk, plan, rate, "--dry-run")
    others = desk.cluster.moves_of_others, desk.cluster.rates_of_others
    if code is not None and desk.throttles.writes != writes and others == mark:
        desk.wrong(f"--dry-run wrote {desk.throttles.last}")


async def _add(desk: _Desk, plan: str, rate: str, rollback: str) -> None:
    """Another move beside those that run, with or without `--additional`."""
    del plan, rollback
    numbers = desk.cluster.topic_partitions(TOOLED)
    more = desk.targets(numbers[-1:])
    if all(more.values()):
        additional = ("--additional",) if desk.turn.chance.random() < 0.7 else ()
        await _execute(desk, desk.plan(more), rate, *additional)


async def _again(desk: _Desk, plan: str, rate: str, rollback: str) -> None:
    """The same with the same file for the way back, which is there: it is refused, and the file stays."""
    if not desk.rewrite(rollback):
        return
    code = await _execute(desk, plan, rate, "--additional", "--rollback-json-file", rollback)
    if not desk.is_as_rewritten(rollback) or code == 0:
        desk.wrong(f"a file that was there was taken for the way back, exit code {code}")


async def _verify(desk: _Desk, plan: str, *options: str) -> bool:
    """`--verify`: what it says is so, and it takes throttles away once nothing moves. Whether it has."""
    cluster = desk.cluster
    before = cluster.content_of(TOOLED), cluster.moving()
    limits = topic_throttles(cluster)
    ended = await desk.run("--verify", "--reassignment-json-file", plan, *options)
    after = cluster.content_of(TOOLED), cluster.moving()
    if ended is None or ended[0] != 0 or before != after or cluster.active_controller() is None:
        return False
    content, moving = after
    for row in ended[1]["partitions"]:
        tp, now = (row["topic"], row["partition"]), (content["partitions"] or {}).get(str(row["partition"]))
        if row["state"] == "completed" and (tp in moving or now != row["target"]):
            desk.wrong(f"{tp} is said to be done, it has {now}, asked for was {row['target']}")
    cleared = bool(ended[1]["throttles_cleared"])
    if cleared and moving:
        desk.wrong(f"throttles are taken away while {sorted(moving)} move")
    if "--preserve-throttles" in options:
        if topic_throttles(cluster) != limits:
            desk.wrong(f"throttles that were to be preserved, {limits}, are {topic_throttles(cluster)}")
    elif cleared:
        _nothing_left(desk, "--verify says that it has removed them")
    elif not moving:
        desk.wrong("nothing moves, and the throttles stay")
    return cleared


def _nothing_left(desk: _Desk, why: str) -> None:
    cluster = desk.cluster
    if left := topic_throttles(cluster):
        desk.wrong(f"{why}, and throttles are left: {left}")
    if not cluster.rates_of_others and (rates := rates_left(cluster)):
        desk.wrong(f"{why}, and rates are left: {rates}")


async def _verify_and_keep(desk: _Desk, plan: str, rate: str, rollback: str) -> None:
    """The throttles stay whatever has ended."""
    del rate, rollback
    await _verify(desk, plan, "--preserve-throttles")


async def _verify_reordered(desk: _Desk, plan: str, rate: str, rollback: str) -> None:
    """Asked about the same replicas in another order."""
    del plan, rate, rollback
    content = desk.cluster.content_of(TOOLED)["partitions"] or {}
    await _verify(desk, desk.plan({int(number): ids[::-1] for number, ids in content.items()}), "--preserve-throttles")


async def _cancel(desk: _Desk, plan: str, rate: str, rollback: str) -> None:
    """`--cancel` leaves no throttle, whether anything moved or not."""
    del rate, rollback
    ended = await desk.run("--cancel", "--reassignment-json-file", plan)
    if ended is not None and ended[0] == 0:
        _nothing_left(desk, "--cancel has ended")


TOOLS: Final[dict[str, Callable[[Turn], Awaitable[str]]]] = {administer.__name__: administer}
