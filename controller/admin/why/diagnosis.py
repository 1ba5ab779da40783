"""From facts to reasons: what is wrong with a partition, why, and what to type next. Pure.

One function for each thing that can be wrong; a replica that is missing from the ISR is explained the same way
wherever it matters (under-replication, a reassignment that waits, an election that found nobody).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from controller.admin.toolkit.console import commas
from controller.admin.why.commands import Commands
from controller.admin.why.damage import damaged_partition, damaged_topic
from controller.admin.why.facts import BrokerFacts, Deletion, PartitionFacts, TopicFacts
from controller.admin.why.finding import Finding, Trouble
from controller.wire.types import BrokerId, TopicPartition
from controller.wire.whole import whole


def diagnose(topic: TopicFacts, commands: Commands, only: int | None = None) -> list[Finding]:
    """All that is wrong with a topic, or with one partition of it; empty when nothing is.

    Of a topic that is being deleted only that is told: its partitions are taken down, and need not be well.
    """
    findings = list(_topic(topic, commands))
    if topic.deletion is Deletion.MARKED:
        return findings
    findings += (*damaged_topic(topic, commands), *_silent(topic, only, commands))
    for partition in topic.partitions:
        if only is None or partition.partition.partition == only:
            for check in _CHECKS:
                findings += check(topic, partition, commands)
    return sorted(findings, key=lambda finding: _ORDER[finding.trouble])


_ORDER: Final = {trouble: at for at, trouble in enumerate(Trouble)}


def _topic(topic: TopicFacts, commands: Commands) -> Iterator[Finding]:
    if topic.controller is None and (topic.asked_zookeeper or topic.asked_brokers):
        yield Finding(
            trouble=Trouble.NO_CONTROLLER,
            subject="the cluster",
            summary="has no controller, so that nothing is elected, moved or deleted",
            because=(
                "/controller does not exist"
                if topic.asked_zookeeper
                else "no controller answered the brokers, or us, in time",
            ),
            next=(f"kwob status{commands.data}" if commands.local else topic.rules.no_controller_next,),
        )
    lines = tuple(topic.quorum.sentences()) if topic.quorum is not None else ()
    if lines:
        then = ("start those controllers again, or look at their disks and links; their logs say what they wait for",)
        yield Finding(trouble=Trouble.QUORUM, subject="the cluster", summary="has controllers that are behind",
                      because=lines, next=then)  # fmt: skip
    if topic.deletion is Deletion.MARKED:
        yield _deletion(topic, commands)


def _silent(topic: TopicFacts, only: int | None, commands: Commands) -> Iterator[Finding]:
    """Brokers that the cluster counts as alive and that do not answer: what else is said may be out of date."""
    partitions = [p for p in topic.partitions if only is None or p.partition.partition == only]
    for broker, facts in sorted(topic.brokers.items()):
        holds = [p for p in partitions if broker in p.replicas]
        if facts.answers is not False or not facts.is_alive or not holds:
            continue
        leads = commas([p.partition for p in holds if p.leader == broker], ", ")
        in_sync = commas([p.partition for p in holds if broker in p.isr and p.leader != broker], ", ")
        asked = f" when asked at {topic.asked_at}" if topic.asked_at and facts.last_sign is None else ""
        lines = {
            f"no word from it{asked}{_silence(facts)}": True,
            "its process does not run": facts.local is False,
            f"faults in force: {'; '.join(facts.faults)}": bool(facts.faults),
            f"it leads {leads}: records are neither taken nor read there": bool(leads),
            f"it counts as in sync in {in_sync}": bool(in_sync),
            topic.rules.until_noticed: True,
        }
        yield Finding(
            trouble=Trouble.SILENT,
            subject=f"broker {broker}",
            summary=f"does not answer ({facts.silence or 'no answer'})",
            because=tuple(line for line, holds in lines.items() if holds),
            next=(commands.revive(broker, facts),),
        )


def _silence(facts: BrokerFacts) -> str:
    """Since when there is no word from a broker, as far as it can be said."""
    return f" since {facts.last_sign}" if facts.last_sign is not None else ""


def _deletion(topic: TopicFacts, commands: Commands) -> Finding:
    because, then = [f"/admin/delete_topics/{topic.topic} exists: deletion was asked for and is not done"], []
    if topic.delete_enabled is False:
        because.append("delete.topic.enable is false at the controller, which then drops the request")
        then.append("set delete.topic.enable=true for the controller and start it again")
    holders = sorted({b for p in topic.partitions for b in p.replicas})
    for broker in holders:
        facts = topic.brokers.get(broker)
        if facts is None or not facts.is_alive:
            because.append(f"broker {broker} holds replicas and is not alive; deletion waits for it")
            then.append(commands.revive(broker, facts))
        elif facts.failed_dirs:
            because.append(f"broker {broker} has failed log dirs: {', '.join(facts.failed_dirs)}")
            then.append(_replace_disk(broker))
    moving = [str(p.partition) for p in topic.partitions if p.is_being_reassigned]
    if moving:
        because.append(f"being reassigned: {', '.join(moving)}")
        then.append(commands.tool("reassign-partitions", "--list"))
    if len(because) == 1:
        because.append("nothing holds it up that can be seen from here: it may just be going on")
        then.append(commands.tool("topics", f"--list --topic {topic.topic}"))
    return Finding(
        trouble=Trouble.DELETION,
        subject=topic.topic,
        summary="is marked for deletion and still there",
        because=tuple(because),
        next=_once(then),
    )


def _offline(topic: TopicFacts, p: PartitionFacts, commands: Commands) -> Iterator[Finding]:
    if p.damage is not None or (p.leader is not None and _alive(topic, p.leader)):
        return
    if not p.state_known:
        yield _never_created(topic, p, commands)
        return
    in_sync = [b for b in p.isr if _alive(topic, b)]
    others = [b for b in p.replicas if b not in p.isr and _alive(topic, b)]
    because = [topic.rules.leader_from.format(isr=commas(p.isr) or "empty", elr=commas(p.elr) or "none")]
    because += [line for b in p.isr if (line := _why_away(topic, p, b)) is not None]
    then = [commands.revive(b, topic.brokers.get(b)) for b in p.isr if not _alive(topic, b)]
    if in_sync and topic.controller is not None:
        because.append(f"broker {commas(tuple(in_sync))} of the ISR is alive: {topic.rules.elects}")
        then.append(commands.tool("topics", f"--describe --topic {topic.topic}"))
    elif others:
        because.append(
            f"broker {commas(tuple(others))} is alive but was not in sync; unclean.leader.election.enable is "
            f"{str(topic.unclean_elections).lower()}"
        )
        then.append(
            "only if those records may be lost: "
            + commands.tool(
                "leader-election",
                f"--election-type unclean --topic {topic.topic} --partition {p.partition.partition}",
            )
        )
    yield Finding(
        trouble=Trouble.OFFLINE,
        subject=str(p.partition),
        summary="is offline: it has no leader"
        if p.leader is None
        else f"is offline: its leader {p.leader} is not alive",
        because=(*because, *p.log_lines),
        next=_once(then),
    )


def _never_created(topic: TopicFacts, p: PartitionFacts, commands: Commands) -> Finding:
    dead = [b for b in p.replicas if not _alive(topic, b)]
    because = ["it has no state: no leader was ever elected"]
    because += [f"broker {b} of its replicas is not alive, or there is none of that id" for b in dead]
    then = [commands.revive(b, topic.brokers.get(b)) for b in dead]
    if len(dead) == len(p.replicas):
        because.append("a first leader needs one live replica")
        then.append(
            commands.tool("reassign-partitions", "--execute --reassignment-json-file plan.json  # to brokers that live")
        )
    return Finding(
        trouble=Trouble.OFFLINE,
        subject=str(p.partition),
        summary="is offline: it never had a leader",
        because=(*because, *p.log_lines),
        next=_once(then),
    )


def _under_min_isr(topic: TopicFacts, p: PartitionFacts, commands: Commands) -> Iterator[Finding]:
    if p.leader is None or len(p.isr) >= topic.min_insync_replicas:
        return
    yield Finding(
        trouble=Trouble.UNDER_MIN_ISR,
        subject=str(p.partition),
        summary=f"refuses records with acks=all: {len(p.isr)} in sync, min.insync.replicas is "
        f"{topic.min_insync_replicas}",
        because=(f"in sync: {commas(p.isr)}",),
        next=_once(_next_for(topic, p, [b for b in p.replicas if b not in p.isr], commands)),
    )


def _under_replicated(topic: TopicFacts, p: PartitionFacts, commands: Commands) -> Iterator[Finding]:
    missing = [b for b in p.origin_replicas if b not in p.isr]
    if not missing or not p.state_known or p.damage is not None:
        return
    yield Finding(
        trouble=Trouble.UNDER_REPLICATED,
        subject=str(p.partition),
        summary=f"is under-replicated: {len(missing)} of {len(p.origin_replicas)} replicas not in sync",
        because=(*(why_missing(topic, p, b) for b in missing), *p.log_lines),
        next=_once(_next_for(topic, p, missing, commands)),
    )


def _reassignment(topic: TopicFacts, p: PartitionFacts, commands: Commands) -> Iterator[Finding]:
    if not p.is_being_reassigned:
        if p.asked_target is not None and topic.deletion is Deletion.NOT_ASKED:
            yield Finding(
                trouble=Trouble.REASSIGNMENT,
                subject=str(p.partition),
                summary=f"is to go to {commas(p.asked_target)}, and that has not begun",
                because=("/admin/reassign_partitions asks for it, and the topic says nothing of it yet",),
                next=(commands.tool("reassign-partitions", "--list"),),
            )
        return
    waits = [b for b in p.target_replicas if b not in p.isr]
    sets = {"target": commas(p.target_replicas), "adding": commas(p.adding_replicas), "isr": commas(p.isr) or "empty"}
    because = [topic.rules.complete.format(**sets)]
    if p.leader is None:
        because.append("it has no leader to copy from, so nothing will change until it has one")
    because += [why_missing(topic, p, b) for b in waits]
    if not waits:
        because.append("all of them are: the controller is about to finish it")
    yield Finding(
        trouble=Trouble.REASSIGNMENT,
        subject=str(p.partition),
        summary=f"is being moved to {commas(p.target_replicas)}; waits for {commas(tuple(waits)) or 'the controller'}",
        because=tuple(because),
        next=_once([*_next_for(topic, p, waits, commands), commands.tool("reassign-partitions", "--list --progress")]),
    )


def _not_preferred(topic: TopicFacts, p: PartitionFacts, commands: Commands) -> Iterator[Finding]:
    if p.leader is None or not p.replicas or p.is_being_reassigned or p.leader == p.replicas[0]:
        return
    first = p.replicas[0]
    if first in p.isr and _alive(topic, first):
        yield Finding(
            trouble=Trouble.NOT_PREFERRED,
            subject=str(p.partition),
            summary=f"is led by {p.leader}, not by its preferred leader {first}, which is in sync",
            next=(
                commands.tool(
                    "leader-election",
                    f"--election-type preferred --topic {topic.topic} --partition {p.partition.partition}",
                ),
            ),
        )


_CHECKS: Final[tuple[Callable[[TopicFacts, PartitionFacts, Commands], Iterator[Finding]], ...]] = (
    damaged_partition,
    _offline,
    _under_min_isr,
    _under_replicated,
    _reassignment,
    _not_preferred,
)

# -- one replica -------------------------------------------------------------------------------------------------------


def why_missing(topic: TopicFacts, p: PartitionFacts, broker: BrokerId) -> str:
    """Why a replica is not in the ISR, in one line: the nearest cause that the facts show."""
    away = _why_away(topic, p, broker)
    if away is not None:
        return away
    facts = topic.brokers[broker]
    if facts.local is False:
        return f"broker {broker} has no process any more; {topic.rules.unnoticed}{_silence(facts)}"
    if facts.faults:
        return f"broker {broker} is alive, with faults in force: {'; '.join(facts.faults)}"
    if p.leader is None:
        return f"broker {broker} is alive, but there is no leader to copy from"
    if facts.answers is False:
        return f"broker {broker} is registered but does not answer{_silence(facts)}"
    if broker in p.follower_throttled and facts.follower_rate is not None:
        return f"broker {broker} may copy at {facts.follower_rate} B/s only (throttled){_behind(topic, p, broker)}"
    leader = topic.brokers.get(p.leader)
    if p.leader in p.leader_throttled and leader is not None and leader.leader_rate is not None:
        rate = leader.leader_rate
        return f"its leader {p.leader} may send {rate} B/s only (throttled){_behind(topic, p, broker)}"
    if topic.quorum is not None and (lag := topic.quorum.observer_lag(broker)) is not None:
        return f"broker {broker} is alive, but {lag[0]} records behind in the metadata log: it does not know all yet"
    if facts.answers and broker not in p.logs:
        return f"broker {broker} is alive but has no log of it: {topic.rules.no_log}"
    return f"broker {broker} is alive{_behind(topic, p, broker) or ', but how far it is cannot be told'}"


def _why_away(topic: TopicFacts, p: PartitionFacts, broker: BrokerId) -> str | None:
    """Why a broker cannot serve a replica at all; None when it can."""
    facts = topic.brokers.get(broker)
    if facts is None or not facts.is_alive:
        ended = " and its process does not run" if facts is not None and facts.local is False else ""
        return f"broker {broker} is not alive: {topic.rules.away}{ended}"
    if facts.failed_dirs and broker not in p.logs:
        return f"broker {broker} is alive, but a log dir failed: {', '.join(facts.failed_dirs)}"
    return None


def _behind(topic: TopicFacts, p: PartitionFacts, broker: BrokerId) -> str:
    """How far a replica is behind its leader, and whether it comes nearer."""
    mine, leaders = p.logs.get(broker), p.logs.get(p.leader) if p.leader is not None else None
    if mine is None or leaders is None:
        return ""
    gap = leaders.size_bytes - mine.size_bytes
    if gap <= 0:
        return ", as long as its leader's log: it is about to come into the ISR"
    text = f", {gap} bytes behind its leader"
    if mine.size_before is None or leaders.size_before is None or topic.sampled_s <= 0:
        return text
    grown = mine.size_bytes - mine.size_before
    if grown <= 0:
        return text + f", and copied nothing in {topic.sampled_s:.1f} s"
    rate = (grown - (leaders.size_bytes - leaders.size_before)) / topic.sampled_s
    if rate <= 0:
        return text + ", and falling further behind: what is written is more than it copies"
    return text + f", catching up at {int(rate)} B/s: about {int(gap / rate) + 1} s"


def _next_for(topic: TopicFacts, p: PartitionFacts, missing: list[BrokerId], commands: Commands) -> Iterator[str]:
    for broker in missing:
        facts = topic.brokers.get(broker)
        if facts is None or not facts.is_alive or facts.local is False:
            yield commands.revive(broker, facts)
        elif facts.failed_dirs and broker not in p.logs:
            yield _replace_disk(broker)
        elif facts.faults:
            yield " ".join(["kwob fault clear", *facts.fault_ids[:1]]) + commands.data
        elif _is_throttled(topic, p, broker, facts):
            yield commands.tool(
                "reassign-partitions",
                "--execute --additional --throttle MORE --reassignment-json-file plan.json"
                if p.is_being_reassigned
                else "--verify --reassignment-json-file plan.json  # removes the throttle",
            )
        elif facts.answers is False:
            yield commands.revive(broker, facts)
        else:
            yield commands.tool("log-dirs", f"--describe --topic-list {topic.topic} --broker-list {broker}")


def _is_throttled(topic: TopicFacts, p: PartitionFacts, broker: BrokerId, facts: BrokerFacts) -> bool:
    if broker in p.follower_throttled and facts.follower_rate is not None:
        return True
    leader = topic.brokers.get(p.leader) if p.leader is not None else None
    return leader is not None and p.leader in p.leader_throttled and leader.leader_rate is not None


def _replace_disk(broker: BrokerId) -> str:
    return f"repair or replace the disk, then start broker {broker} again"


def _alive(topic: TopicFacts, broker: BrokerId) -> bool:
    facts = topic.brokers.get(broker)
    return facts is not None and facts.is_alive


def _once(commands: Iterator[str] | list[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(commands))


def split_target(target: str, topics: set[str]) -> TopicPartition | str | None:
    """What `<topic>[-<partition>]` names: a topic if there is one of that name, else a partition; None if neither."""
    if target in topics:
        return target
    topic, _, text = target.rpartition("-")
    number = whole(text)
    return TopicPartition(topic, number) if topic in topics and number is not None else None
