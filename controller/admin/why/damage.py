"""What nobody can read in ZooKeeper: which znode, what is wrong with it, and what would make it right. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from controller.admin.toolkit.console import commas
from controller.admin.why.commands import Commands
from controller.admin.why.facts import Damage, PartitionFacts, TopicFacts
from controller.admin.why.finding import Finding, Trouble
from controller.wire.znodes import DeleteTopicsTopicZNode


def damaged_topic(topic: TopicFacts, commands: Commands) -> Iterator[Finding]:
    """The znode of the topic: no controller that starts now knows one of its partitions."""
    if topic.damage is None:
        return
    document = '{"version":2,"partitions":{"0":[BROKER,BROKER,BROKER]},"adding_replicas":{},"removing_replicas":{}}'
    marker = DeleteTopicsTopicZNode.path(topic.topic)
    yield Finding(
        trouble=Trouble.DAMAGED,
        subject=topic.topic,
        summary="has a znode that nobody can read: a controller that starts now knows none of its partitions",
        because=(str(topic.damage),),
        next=(
            f"write down where its replicas are: {_set(topic.damage, document, commands)}",
            f"or delete the topic: zookeeper-shell.sh {commands.zookeeper} create {marker} ''",
        ),
    )


def damaged_partition(topic: TopicFacts, p: PartitionFacts, commands: Commands) -> Iterator[Finding]:
    """The state of a partition, or its part of the topic's znode."""
    if p.damage is None:
        return
    is_led = p.leader is not None and (found := topic.brokers.get(p.leader)) is not None and found.is_alive
    if p.damage.is_assignment:
        then = f"correct that part of the document: zookeeper-shell.sh {commands.zookeeper} get {p.damage.path}"
    else:
        leader, isr = ("LEADER" if p.leader is None else p.leader), (commas(p.isr) or "LEADER")
        document = f'{{"controller_epoch":0,"leader":{leader},"version":1,"leader_epoch":EPOCH,"isr":[{isr}]}}'
        then = (
            f"write a state with a leader that has all records, and an EPOCH above those in the files "
            f"leader-epoch-checkpoint of its replicas: {_set(p.damage, document, commands)}"
        )
    until = (
        "it works on until the controller or its leader changes" if is_led else "it has no leader until that is mended"
    )
    yield Finding(
        trouble=Trouble.DAMAGED,
        subject=str(p.partition),
        summary=f"has a znode that nobody can read: {until}",
        because=(str(p.damage),),
        next=(then,),
    )  # fmt: skip


def _set(damage: Damage, document: str, commands: Commands) -> str:
    return f"zookeeper-shell.sh {commands.zookeeper} set {damage.path} '{document}'"
