"""A sweep as Spark jobs: one variant in, one task, one row out. The only module of this room that needs pyspark."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from broker_sim.replay.many import play_on
from broker_sim.replay.session import spark_session
from controller.rehearse.variants import Variant, play_in, without_cluster
from controller.wire.cluster_file import ClusterShape

#: Plays variants: how many are done, as it becomes known; at last the rows, in the order of the variants.
Job = Callable[[Sequence[Variant]], Iterator[int | list[dict[str, Any]]]]


@contextmanager
def spark_job(cluster: ClusterShape, master: str) -> Iterator[Job]:
    """Plays variants of that cluster, which goes to each machine once a job; the session ends with the block.

    Raises ReplayRefused where Spark does not start.
    """
    with spark_session(master) as spark:

        def run(listed: Sequence[Variant]) -> Iterator[int | list[dict[str, Any]]]:
            return play_on(spark, [without_cluster(variant) for variant in listed], partial(play_in, cluster))

        yield run
