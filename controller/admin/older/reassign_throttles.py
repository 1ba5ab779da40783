"""Throttles of a reassignment as 2.0 and 2.6 wrote and removed them by znode. Source: spec admin.md §3.6."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from controller.admin.older.program import ZkRun
from controller.admin.older.znodes import V20
from controller.admin.reassignment import throttles as keys
from controller.admin.reassignment.plan_file import ReassignmentPlan
from controller.wire.types import BrokerId, TopicPartition

Targets = Mapping[TopicPartition, tuple[BrokerId, ...]]


def throttled_20(targets: Targets, current: Targets) -> dict[str, dict[str, str]]:
    """The lists per topic in 2.0: all old replicas of partitions that get a new one; all new replicas."""
    leaders: dict[str, list[str]] = defaultdict(list)
    followers: dict[str, list[str]] = defaultdict(list)
    for partition, target in targets.items():
        added = [r for r in target if r not in current[partition]]
        followers[partition.topic] += [f"{partition.partition}:{r}" for r in added]
        leaders[partition.topic] += [f"{partition.partition}:{r}" for r in current[partition] if added]
    return {
        topic: {keys.LEADER_REPLICAS: ",".join(leaders[topic]), keys.FOLLOWER_REPLICAS: ",".join(followers[topic])}
        for topic in sorted(followers)
    }


async def limit(run: ZkRun, plan: ReassignmentPlan, current: Targets, rate: int) -> None:
    """Sets both rates on the brokers concerned: in 2.0 those of any partition of the topics, and the targets."""
    configs = dict.fromkeys((keys.LEADER_THROTTLE, keys.FOLLOWER_THROTTLE), str(rate))
    for broker in _limited(run.compat, plan.targets, current):
        await run.znodes.change_configs(f"brokers/{broker}", configs)


def _limited(compat: str, targets: Targets, current: Targets) -> Sequence[BrokerId]:
    if compat != V20:
        return keys.throttled_brokers(keys.move_map({}, targets, current))
    return sorted({r for replicas in (*targets.values(), *current.values()) for r in replicas})


async def clear(run: ZkRun, plan: ReassignmentPlan) -> None:
    """Removes rates and lists; 2.0 says so only when there were some, 2.6 always."""
    live = {b.broker_id for b in await run.znodes.brokers()}
    topics = sorted({p.topic for p in plan.targets})
    brokers = sorted(live if run.compat == V20 else live | {r for t in plan.targets.values() for r in t})
    if run.compat != V20:
        s = "s" if len(brokers) != 1 else ""
        run.console.line(f"Clearing broker-level throttles on broker{s} {','.join(map(str, brokers))}")
    none: dict[str, str | None] = dict.fromkeys(keys.BROKER_THROTTLES)
    changed = [await run.znodes.change_configs(f"brokers/{broker}", none) for broker in brokers]
    if run.compat != V20:
        s = "s" if len(topics) != 1 else ""
        run.console.line(f"Clearing topic-level throttles on topic{s} {','.join(topics)}")
    none = dict.fromkeys(keys.TOPIC_THROTTLES)
    changed += [await run.znodes.change_configs(f"topics/{topic}", none) for topic in topics]
    if run.compat == V20 and any(changed):
        run.console.line("Throttle was removed.")
