"""All questions, one after the other."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Final

from controller.sim.cluster import Cluster
from controller.sim.questions import of_cluster, of_configs, of_groups, of_logs, of_reads, of_topics, of_writes
from controller.sim.questions.inquiry import Inquiry
from controller.wire.protocol import ProtocolError
from controller.wire.records import CorruptBatch

Question = Callable[[Inquiry], Awaitable[None]]
#: In this order: what is made by one is asked of by others.
QUESTIONS: Final[tuple[Question, ...]] = (
    of_topics.create,
    *(of_cluster.metadata, of_cluster.metadata_of_some, of_cluster.describe_cluster, of_cluster.find_coordinator),
    *(of_topics.made_by_asking, of_cluster.elections, of_cluster.moves, of_cluster.moved),
    *(
        of_configs.of_topics,
        of_configs.of_brokers,
        of_configs.altered,
        of_configs.altered_of_brokers,
        of_configs.limits_of_brokers,
        of_configs.in_force,
    ),
    *(of_logs.records, of_writes.sequences, of_writes.refused, of_logs.dirs, of_logs.log_dir_moves),
    *(of_reads.waits, of_reads.old_segments, of_reads.in_sessions, of_reads.in_epochs),
    of_writes.by_configs,
    of_groups.a_life,
    *(of_topics.grow, of_topics.delete, of_cluster.another_office),
)


#: Those that take long: each is asked in this share of worlds.
LONG: Final[frozenset[Question]] = frozenset(
    (of_configs.limits_of_brokers, of_configs.in_force, of_writes.by_configs, of_reads.waits, of_reads.old_segments)
)
LONG_SHARE: Final = 0.4


async def wrong_answers(cluster: Cluster, seed: object, *, in_full: bool = False) -> list[str]:
    """What a cluster at rest does not answer as it must; it is at rest again afterwards, and as it was. Each question
    has a stream of chance of its own, and may be left out if it takes long, unless all are asked `in_full`."""
    inquiry = Inquiry(cluster)
    for question in QUESTIONS:
        inquiry.chance = random.Random(f"{seed}/{question.__module__}.{question.__name__}")
        if question in LONG and not in_full and inquiry.chance.random() >= LONG_SHARE:
            continue
        try:
            await question(inquiry)
        except (OSError, ProtocolError, CorruptBatch) as error:
            inquiry.wrong.append(f"{question.__name__}: no answer that can be read: {error!r}")
    return inquiry.wrong
