"""Rehearsals as one Spark job."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from broker_sim.replay.many import play_on
from controller.rehearse.variants import Sweep, play, play_in, with_losses, without_cluster
from tests.worlds.rehearsals import GB, brokers, scenario, topic

pytestmark = pytest.mark.spark


@pytest.mark.slow
def test_a_sweep_says_the_same_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    cluster = {"brokers": brokers(3), "topics": {"t": topic([1, 2], [2, 3], bytes=GB, in_bytes_per_s=1e6)}}
    given = scenario(tmp_path, cluster=cluster)
    sweep = Sweep.parse(given, ["broker"])
    (base,) = sweep.bases(given)
    listed = list(with_losses(base, sweep.losses or (), play(base), [5_000], 30_000))
    light = [without_cluster(variant) for variant in listed]
    assert all(not variant.scenario.cluster.topics for variant in light)
    *counts, rows = play_on(spark, light, partial(play_in, given.cluster))
    assert all(isinstance(count, int) and count <= 3 for count in counts)
    assert rows == [play(variant) for variant in listed]


def test_what_a_play_raises_is_raised(spark: SparkSession) -> None:
    with pytest.raises(PySparkException, match="ZeroDivisionError"):
        list(play_on(spark, [1, 0], partial(divmod, 7), per_task=2))
