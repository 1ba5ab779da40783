"""Which cluster a test gets: what its marker says, then what all clusters have in common, then the usual."""

from __future__ import annotations

from pathlib import Path

from tests.local.test_recipes import pytest_run

COMMON = """
import pytest

@pytest.fixture(scope="session")
def kafka_cluster_options():
    return {"brokers": 2, "settings": {"min.insync.replicas": "2"}}
"""
TESTS = """
import pytest

def test_common(kafka_cluster):
    assert kafka_cluster.broker_ids == (1, 2)

@pytest.mark.kafka_cluster(brokers=1, settings={"num.partitions": "7"})
def test_marked(kafka_cluster):
    assert kafka_cluster.broker_ids == (1,)

@pytest.mark.kafka_cluster(controllers=2)
class TestOther:
    def test_both(self, kafka_cluster):
        assert kafka_cluster.broker_ids == (1, 2) and kafka_cluster.kill_controller(902) == 902

    @pytest.mark.kafka_cluster(brokers=3)
    def test_the_nearest_marker_counts(self, kafka_cluster):
        assert kafka_cluster.broker_ids == (1, 2, 3)
        with pytest.raises(ValueError):
            kafka_cluster.kill_controller(902)

def test_of_a_module(module_kafka_cluster):
    assert module_kafka_cluster.broker_ids == (1, 2)
"""
MODULE = """
import pytest

pytestmark = pytest.mark.kafka_cluster(brokers=1)

def test_of_a_module(module_kafka_cluster, kafka_cluster, session_kafka_cluster):
    assert [len(c.broker_ids) for c in (module_kafka_cluster, kafka_cluster, session_kafka_cluster)] == [1, 1, 2]
"""


def test_a_marker_goes_before_what_all_clusters_have_in_common(tmp_path: Path) -> None:
    for name, text in (("conftest", COMMON), ("test_a", TESTS), ("test_b", MODULE)):
        (tmp_path / f"{name}.py").write_text(text)
    ran = pytest_run(tmp_path, "-q")
    assert ran.returncode == 0 and "6 passed" in ran.stdout, ran.stdout + ran.stderr
