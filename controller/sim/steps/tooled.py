"""The tool that moves replicas, run by an administrator in a simulated world, on topics of its own.

What it leaves in ZooKeeper is judged there: throttles are set before anything moves, on all that it concerns, and are
gone once it says so; what it says of a move is so. Mostly these topics have records, so that a move under a low
throttle takes a while, and another is asked for in its midst; where brokers have several log dirs replicas may go to
given ones. Where others have moved these topics, or have set rates, what they may have changed is not judged. Source:
spec admin.md §3.5 to §3.8; Kafka 3.9 `ReassignPartitionsCommand`.
"""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from controller.admin.commands import reassign_partitions
from controller.admin.toolkit.machine import Machine
from controller.sim.cluster import Cluster
from controller.sim.history import parsed
from controller.sim.oracles.disks import log_dirs
from controller.sim.oracles.throttles import (
    DIR_RATE,
    Throttles,
    forgotten_are_not_needed,
    rates_left,
    throttled_topics,
    topic_throttles,
)
from controller.sim.shape import TOOLED
from controller.sim.steps.log_troubles import fill
from controller.sim.steps.operations import alter_configs
from controller.sim.steps.turn import NothingThere, Turn
from controller.wire.protocol import ApiKey

#: Bytes a second: moves take effect at once, or take a while.
RATES: Final = ("300", "300", "300", "1000000")
#: How long an administrator waits for a tool, and how often it is asked whether all is done.
PATIENCE_S: Final = 30.0
VERIFIED_AT_MOST: Final = 40
_OWN: Final = "what leads back"
#: A record of which a few are more than the lowest rate lets through in the time over which it is measured.
LARGE: Final = b"moved" * 240
#: Bytes a second of moves between log dirs.
DIR_RATES: Final = ("200", "600")
#: (topic, partition), and how the tool names brokers in it.
_Partition = tuple[str, int]
_Targets = dict[_Partition, list[int]]


@dataclass(slots=True)
class _Desk:
    """One administrator: its files, and what it has asked for."""

    turn: Turn
    folder: Path
    notes: list[str]
    throttles: Throttles
    #: Whether replicas go to given log dirs.
    names_dirs: bool = False
    #: What was asked for last, of each partition.
    asked: _Targets = field(default_factory=dict)
    #: file -> the partitions in it
    files: dict[str, set[_Partition]] = field(default_factory=dict)
    #: who was registered when the tool last began
    there: frozenset[int] = frozenset()

    @property
    def cluster(self) -> Cluster:
        return self.turn.cluster

    async def run(self, *argv: str) -> tuple[int, dict[str, Any]] | None:
        """(exit code, result) of the tool; None when it took too long."""
        cluster, out = self.cluster, io.StringIO()
        servers = ",".join(f"{self.turn.name(number)}:{cluster.port(number)}" for number in cluster.broker_ids)
        self.there = frozenset(cluster.registered())
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

    def plan(self, targets: _Targets) -> str:
        """A file of these moves; its path."""
        rows = [self._row(*tp, ids) for tp, ids in sorted(targets.items())]
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"plan-{len(list(self.folder.iterdir()))}.json"
        path.write_text(json.dumps({"version": 1, "partitions": rows}), encoding="utf-8")
        self.files[str(path)] = set(targets)
        return str(path)

    def _row(self, topic: str, partition: int, replicas: Sequence[int]) -> dict[str, Any]:
        row: dict[str, Any] = {"topic": topic, "partition": partition, "replicas": replicas}
        if not self.names_dirs:
            return row
        names = [(self.turn.name(broker), f"{self.turn.name(broker)}-2") for broker in replicas]
        return row | {"log_dirs": [str(self.cluster.folder / self.turn.chance.choice(pair)) for pair in names]}

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

    def targets(self, partitions: Sequence[_Partition]) -> _Targets:
        """New replicas of these, drawn among those that are registered."""
        alive, chance = sorted(self.cluster.registered()), self.turn.chance
        drawn = {tp: chance.sample(alive, min(len(alive), chance.choice((1, 2, 3)))) for tp in partitions}
        self.asked |= drawn
        return drawn

    def partitions(self) -> list[_Partition]:
        """Those of its topics that are there."""
        return [(topic, number) for topic in TOOLED for number in self.cluster.topic_partitions(topic)]

    def contents(self) -> dict[str, dict[str, Any]]:
        """What the znodes of its topics say."""
        return {topic: self.cluster.content_of(topic) for topic in TOOLED}

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
    if not [topic for topic in TOOLED if await _topic_is_there(turn, topic)]:
        raise NothingThere
    throttles = Throttles(cluster)
    has_dirs = cluster.shape is not None and cluster.shape.log_dirs > 1
    names_dirs = has_dirs and turn.chance.random() < 0.7
    desk = _Desk(turn, cluster.folder / "administrator", [], throttles, names_dirs)
    if turn.chance.random() < 0.85:
        for topic, partition in desk.partitions():
            await fill(turn, topic, partition, 3, LARGE)
    cluster.world.zookeeper.on_operation.append(throttles.operation)
    try:
        await _course(desk)
    finally:
        cluster.world.zookeeper.on_operation.remove(throttles.operation)
    return ", ".join(desk.notes)


async def _course(desk: _Desk) -> None:
    turn, cluster = desk.turn, desk.cluster
    partitions = desk.partitions()
    first = desk.targets(turn.chance.sample(partitions, turn.chance.choice((1, 2, len(partitions)))))
    if not all(first.values()):
        raise NothingThere
    plan, rate = desk.plan(first), turn.chance.choice(RATES)
    if turn.chance.random() < 0.4:
        await _dry(desk, plan, rate)
    rollback = desk.new_path("rollback")
    of_dirs = ("--replica-alter-log-dirs-throttle", turn.chance.choice(DIR_RATES)) if desk.names_dirs else ()
    await execute(desk, plan, rate, "--rollback-json-file", rollback, *of_dirs)
    await cluster.world.sleep(turn.chance.choice((0.0, 0.5, 2.0)))
    bends = (_add, _add, _again, _verify_one, _verify_and_keep, _verify_reordered, _cancel, _cancel_and_keep)
    for bend in turn.chance.sample(bends, turn.chance.choice((2, 3))):
        await bend(desk, plan, rate, rollback)
        forgotten_are_not_needed(cluster, desk.wrong)
        await cluster.world.sleep(turn.chance.choice((0.0, 0.5, 2.0)))
    everything = desk.plan(desk.asked)
    for _ in range(VERIFIED_AT_MOST):
        if await _verify(desk, everything):
            return
        forgotten_are_not_needed(cluster, desk.wrong)
        await cluster.world.sleep(1.0)
    for topic, names in throttled_topics(cluster).items():  # a throttle that stays would let no move end
        await alter_configs(turn, 2, topic, dict.fromkeys(names, ""), 1)
    for broker, rates in rates_left(cluster).items():
        if DIR_RATE in rates and broker in cluster.running():
            await alter_configs(turn, 4, str(broker), {DIR_RATE: ""}, 1, to=broker)


async def _topic_is_there(turn: Turn, topic: str) -> bool:
    """Creates the topic, of two or three partitions."""
    cluster = turn.cluster
    if cluster.topic_partitions(topic):
        return True
    count, factor = turn.chance.choice((2, 3)), turn.chance.choice((1, 2))
    rows = [{"partition_index": number, "broker_ids": turn.replicas(factor)} for number in range(count)]
    row = {"name": topic, "num_partitions": -1, "replication_factor": -1, "assignments": rows, "configs": []}
    await cluster.ask_once(ApiKey.CREATE_TOPICS, 4, {"topics": [row], "timeout": 1_000, "validate_only": False})
    await cluster.world.sleep(1.2)
    return bool(cluster.topic_partitions(topic))


_Bend = Callable[[_Desk, str, str, str], Awaitable[None]]


async def execute(desk: _Desk, plan: str, rate: str, *options: str) -> int | None:
    """`--execute` with a throttle; without `--additional` it is refused while anything moves."""
    cluster = desk.cluster
    before, heard = cluster.moving(), _moves_of_the_office(cluster)
    desk.throttles.expect(None if "--dry-run" in options else rate)
    ended = await desk.run("--execute", "--reassignment-json-file", plan, "--throttle", rate, *options)
    if ended is None:
        return None
    code, _ = ended
    moving, heard = cluster.moving(), heard & _moves_of_the_office(cluster)
    same = {tp for tp in (moving.keys() & heard) - desk.files[plan] if before.get(tp) == moving[tp]}
    if code == 0 and same and "--additional" not in options and "--dry-run" not in options:
        desk.wrong(f"a reassignment began beside others, {sorted(same)}, though nobody gave --additional")
    return code


async def _dry(desk: _Desk, plan: str, rate: str) -> None:
    """`--dry-run` changes nothing."""
    writes = desk.throttles.writes
    mark = desk.cluster.moves_of_others, desk.cluster.rates_of_others
    code = await execute(desk, plan, rate, "--dry-run")
    others = desk.cluster.moves_of_others, desk.cluster.rates_of_others
    if code is not None and desk.throttles.writes != writes and others == mark:
        desk.wrong(f"--dry-run wrote {desk.throttles.last}")


async def _add(desk: _Desk, plan: str, rate: str, rollback: str) -> None:
    """Another move beside those that run, with or without `--additional`."""
    del plan, rollback
    more = desk.targets([desk.turn.chance.choice(desk.partitions())])
    if all(more.values()):
        share = 0.2 if len(desk.cluster.moving()) == 1 else 0.6  # beside a single one it must be refused, too
        additional = ("--additional",) if desk.turn.chance.random() < share else ()
        await execute(desk, desk.plan(more), rate, *additional)


async def _again(desk: _Desk, plan: str, rate: str, rollback: str) -> None:
    """The same with the same file for the way back, which is there: it is refused, and the file stays."""
    if not desk.rewrite(rollback):
        return
    code = await execute(desk, plan, rate, "--additional", "--rollback-json-file", rollback)
    if not desk.is_as_rewritten(rollback) or code == 0:
        desk.wrong(f"a file that was there was taken for the way back, exit code {code}")


async def _verify(desk: _Desk, plan: str, *options: str) -> bool:
    """`--verify`: what it says is so, and it takes throttles away once nothing moves. Whether it has."""
    cluster = desk.cluster
    before, limits = (desk.contents(), cluster.moving()), topic_throttles(cluster)
    between_dirs = _between_dirs(cluster)
    ended = await desk.run("--verify", "--reassignment-json-file", plan, *options)
    after = desk.contents(), cluster.moving()
    if ended is None or ended[0] != 0 or before != after or cluster.active_controller() is None:
        return False
    contents, moving = after
    for row in ended[1]["partitions"]:
        tp, now = (row["topic"], row["partition"]), (contents[row["topic"]]["partitions"] or {})[str(row["partition"])]
        if row["state"] == "completed" and (tp in moving or now != row["target"]):
            desk.wrong(f"{tp} is said to be done, it has {now}, asked for was {row['target']}")
    between_dirs &= _between_dirs(cluster)
    is_said = _judge_dirs(desk, ended[1]["moves"], between_dirs)
    cleared, listed = bool(ended[1]["throttles_cleared"]), {row["replica"] for row in ended[1]["moves"]}
    seen = moving.keys() & _moves_of_the_office(cluster)
    if cleared and (seen or listed & between_dirs):
        desk.wrong(f"throttles are taken away while {sorted(seen)} move, {sorted(listed & between_dirs)} between dirs")
    if "--preserve-throttles" in options:
        _nothing_changed(desk, limits, TOOLED)
    elif cleared:
        _nothing_left(desk, plan, "--verify says that it has removed them")
    elif not moving and is_said:
        desk.wrong("nothing moves, and the throttles stay")
    _nothing_changed(desk, limits, TOOLED if not cleared else set(TOOLED) - _topics(desk, plan))
    return cleared


def _moves_of_the_office(cluster: Cluster) -> set[_Partition]:
    """What moves, as far as whoever is in office could read the topics: of more no tool hears. Nor does it of a topic
    whose replicas have all been deleted: while ZooKeeper refuses to delete its znode, that says alone what was moving.
    Source: §8.8, §10.7."""
    controller = cluster.controllers.get(cluster.active_controller() or -1)
    if controller is None:
        return set()
    state = controller.state
    return {tp for tp in state.partitions_being_reassigned if state.assignment(tp).is_being_reassigned}


def _between_dirs(cluster: Cluster) -> set[str]:
    """Replicas that move between the dirs of their broker, as the tool names them."""
    return {f"{tp}-{broker}" for broker, log_dir in log_dirs(cluster) for tp in log_dir.futures}


def _judge_dirs(desk: _Desk, rows: Sequence[Mapping[str, Any]], between_dirs: set[str]) -> bool:
    """Of no replica that moves to another dir it is said that this is done. Whether all are said to be where they go
    to, or to stay."""
    for row in rows:
        if row["done"] and row["replica"] in between_dirs:
            desk.wrong(f"{row['replica']} is said to be in its dir, and moves to another")
    return all(row["done"] for row in rows)


def _topics(desk: _Desk, plan: str) -> set[str]:
    return {topic for topic, _ in desk.files[plan]}


def _nothing_changed(desk: _Desk, limits: Mapping[str, Mapping[str, str]], topics: Collection[str]) -> None:
    """The lists of these topics are what they were."""
    now = topic_throttles(desk.cluster)
    if changed := {topic for topic in topics if now.get(topic) != limits.get(topic)}:
        desk.wrong(f"throttles of {sorted(changed)} that were to be preserved, {dict(limits)}, are {now}")


def _nothing_left(desk: _Desk, plan: str, why: str) -> None:
    """No list of a topic of the plan, no rate of a broker; who came while the tool ran is not known to it."""
    cluster = desk.cluster
    if left := {topic: lists for topic, lists in topic_throttles(cluster).items() if topic in _topics(desk, plan)}:
        desk.wrong(f"{why}, and throttles are left: {left}")
    rates = {broker: limits for broker, limits in rates_left(cluster).items() if broker in desk.there}
    if not cluster.rates_of_others and rates:
        desk.wrong(f"{why}, and rates are left: {rates}")


async def _verify_and_keep(desk: _Desk, plan: str, rate: str, rollback: str) -> None:
    """The throttles stay whatever has ended."""
    del rate, rollback
    await _verify(desk, plan, "--preserve-throttles")


async def _verify_one(desk: _Desk, plan: str, rate: str, rollback: str) -> None:
    """Asked about one partition alone: the lists of the other topic stay."""
    del plan, rate, rollback
    tp = desk.turn.chance.choice(sorted(desk.asked))
    await _verify(desk, desk.plan({tp: desk.asked[tp]}))


async def _verify_reordered(desk: _Desk, plan: str, rate: str, rollback: str) -> None:
    """Asked about the same replicas in another order."""
    del plan, rate, rollback
    targets = {tp: desk.cluster.assignment(*tp)[::-1] for tp in desk.partitions()}
    await _verify(desk, desk.plan(targets), "--preserve-throttles")


async def _cancel(desk: _Desk, plan: str, rate: str, rollback: str) -> None:
    """`--cancel` leaves no throttle, whether anything moved or not."""
    del rate, rollback
    if await _cancelled(desk, plan):
        _nothing_left(desk, plan, "--cancel has ended")


async def _cancel_and_keep(desk: _Desk, plan: str, rate: str, rollback: str) -> None:
    """`--cancel` takes no throttle away that is to stay."""
    del rate, rollback
    limits = topic_throttles(desk.cluster)
    await _cancelled(desk, plan, "--preserve-throttles")
    _nothing_changed(desk, limits, TOOLED)


async def _cancelled(desk: _Desk, plan: str, *options: str) -> bool:
    """`--cancel`, which leaves of each partition that moved the replicas that it had before. Whether it was done."""
    cluster = desk.cluster
    before, mark = cluster.moving(), cluster.moves_of_others
    ended = await desk.run("--cancel", "--reassignment-json-file", plan, *options)
    if ended is None or ended[0] != 0:
        return False
    listed = {f"{topic}-{number}" for topic, number in desk.files[plan]}
    if not set(ended[1]["cancelled"]) <= listed:
        desk.wrong(f"--cancel ends {ended[1]['cancelled']}, named were {sorted(listed)}")
    for topic, number in sorted(desk.files[plan] & before.keys()):
        replicas, adding, _ = before[topic, number]
        origin, now = [broker for broker in replicas if broker not in adding], cluster.assignment(topic, number)
        is_cancelled = f"{topic}-{number}" in ended[1]["cancelled"] and adding
        if is_cancelled and now != origin and cluster.moves_of_others == mark:
            desk.wrong(f"a cancelled move of {topic}-{number} from {origin} left {now}")
    return True


TOOLS: Final[dict[str, Callable[[Turn], Awaitable[str]]]] = {administer.__name__: administer}
