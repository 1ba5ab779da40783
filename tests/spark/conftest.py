"""One Spark session for all tests of the job."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from broker_sim.replay.errors import ReplayRefused
from broker_sim.replay.session import spark_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A local session, as a small replay gets it."""
    try:
        opened = spark_session("local[2]", input_bytes=0)
        session = opened.__enter__()
    except ReplayRefused as error:
        pytest.fail(str(error), pytrace=False)
    yield session
    opened.__exit__(None, None, None)
