"""One recorded run of a real Kafka through the whole job, three ways: the same figures as without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import SparkSession

from broker_sim.replay import validation_job

RUN: Final = Path(__file__).parents[3] / "shared" / "data" / "isr" / "controller-failover"


@pytest.mark.kafka
@pytest.mark.timeout(900)
@pytest.mark.skipif(not RUN.is_dir(), reason="the recorded runs are not beside the repository (../shared/data/isr)")
def test_spark_changes_no_figure(spark: SparkSession) -> None:
    assert validation_job.validate([RUN], spark=spark) == validation_job.validate([RUN])
