"""Recorded runs of a real Kafka through the whole job, three ways: on Spark the same figures as without.

Those without Spark are what docs/replay-validation.md says (`tests/unit/replay/validation/test_validation.py`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import SparkSession

from broker_sim.replay.validation import job as validation_job

#: With a step back in it, as a relative path may have: files must still be known by the name that Spark tells.
RUNS: Final = Path(__file__).parents[2] / ".." / "shared" / "data" / "isr"
NAMES: Final = (
    "controller-failover", "flapping-min-isr", "kill-and-restarts", "pause-default-lag", "reassignment-throttled",
    "slow-links", "throttled-follower",
)  # fmt: skip


@pytest.mark.kafka
@pytest.mark.timeout(900)
@pytest.mark.skipif(not RUNS.is_dir(), reason="the recorded runs are not beside the repository (../shared/data/isr)")
@pytest.mark.parametrize("name", NAMES)
def test_spark_changes_no_figure(spark: SparkSession, name: str) -> None:
    runs = validation_job.look([RUNS / name])
    ways = ("trace", "states", "requests")
    assert validation_job.validate(runs, spark=spark, ways=ways) == validation_job.validate(runs, ways=ways)
