"""How Spark is set for what a step reads."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from broker_sim.replay.session import SMALL_INPUT_BYTES, TINY_INPUT_BYTES, tuned_for

pytestmark = pytest.mark.spark

GREAT = {
    "spark.sql.shuffle.partitions": "64",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.codegen.wholeStage": "true",
}


def settings_of(session: SparkSession) -> dict[str, str | None]:
    return {key: session.conf.get(key) for key in GREAT}


@pytest.mark.parametrize(
    ("input_bytes", "inside"),
    [
        (0, {**dict.fromkeys(GREAT, "false"), "spark.sql.shuffle.partitions": "2"}),
        (TINY_INPUT_BYTES, {**GREAT, "spark.sql.shuffle.partitions": "2", "spark.sql.adaptive.enabled": "false"}),
        (SMALL_INPUT_BYTES, GREAT),
    ],
)
def test_a_step_of_a_great_job_is_set_for_what_it_reads(
    spark: SparkSession, input_bytes: int, inside: dict[str, str]
) -> None:
    session = spark.newSession()
    for key, value in GREAT.items():
        session.conf.set(key, value)
    with pytest.raises(ZeroDivisionError), tuned_for(session, input_bytes):
        assert settings_of(session) == inside
        raise ZeroDivisionError
    assert settings_of(session) == GREAT  # as before, however the step ended
