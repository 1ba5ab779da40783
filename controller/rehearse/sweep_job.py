"""A sweep as one Spark job: one variant in, one task, one row out. The only module of this room that needs pyspark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from broker_sim.replay.many import play_on
from broker_sim.replay.session import spark_session
from controller.rehearse.variants import Variant, play_in, without_cluster
from controller.wire.cluster_file import ClusterShape


def run_variants(listed: Sequence[Variant], cluster: ClusterShape, master: str) -> Iterator[int | list[dict[str, Any]]]:
    """How many are done, as it becomes known; at last the rows, in the order of the variants.

    The cluster goes to each machine once. The session ends with the job. Raises ReplayRefused where Spark does not
    start.
    """
    with spark_session(master) as spark:
        yield from play_on(spark, [without_cluster(variant) for variant in listed], partial(play_in, cluster))
