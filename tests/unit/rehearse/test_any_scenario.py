"""Whatever a scenario or a cluster file says: it is rehearsed, or refused in one line with its file."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controller.rehearse.scenario import EVENT_KINDS, ScenarioError
from controller.rehearse.scenario_file import load
from controller.wire.cluster_file import ClusterFileError
from tests.worlds.rehearsals import brokers, topic

CLUSTER: dict[str, Any] = {"brokers": brokers(3), "topics": {"t": topic([1, 2, 3], [2, 3, 1])}}
COLUMNS = (
    "at", "for", "do", "fault", "broker", "rack", "line", "file", "partitions", "topic", "topics", "partition",
    "throttle", "batch", "link", "disk", "down", "wait", "pause", "rate", "factor", "factors", "period", "id", "spread",
    "bytes_per_second", "peer", "log_dir", "delay_ms",
)  # fmt: skip
SETTINGS = (
    "min.insync.replicas", "log.retention.ms", "log.retention.hours", "replica.lag.time.max.ms", "listeners",
    "zookeeper.session.timeout.ms", "broker.session.timeout.ms", "inter.broker.protocol.version", "nonsense",
    "replication.quota.window.num", "auto.leader.rebalance.enable",
)  # fmt: skip
KEYS = (
    "name", "settings", "limits", "acks", "controllers", "broker_start", "broker_stop", "batch_bytes", "seed", "end",
    "events", "faults", "other",
)  # fmt: skip
plain = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.sampled_from(["5s", "50MB", "t", "a"])
)
anything = st.recursive(
    plain, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
)
rows = st.dictionaries(st.sampled_from(COLUMNS), anything, max_size=5)
events = st.builds(lambda do, row: {**row, "do": do}, st.sampled_from(EVENT_KINDS), rows)
faults = st.builds(
    lambda kind, row: {**row, "fault": kind}, st.sampled_from(["kill", "slow_disk", "slow_link", "api", "x"]), rows
)
documents = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(KEYS, anything),
        "events": st.lists(events | rows | anything, max_size=3) | anything,
        "faults": st.lists(faults | anything, max_size=3) | anything,
        "settings": st.dictionaries(st.sampled_from(SETTINGS), plain, max_size=3) | anything,
    },
)
clusters = st.fixed_dictionaries(
    {},
    optional={
        "brokers": st.lists(
            st.dictionaries(st.sampled_from(["id", "rack", "link_bytes_per_s", "configs", "log_dirs"]), anything),
            max_size=2,
        )
        | anything,
        "topics": st.dictionaries(
            st.text(max_size=3), st.fixed_dictionaries({"partitions": st.just([[1]])}) | anything, max_size=2
        ),
        "configs": st.dictionaries(st.sampled_from(SETTINGS), plain, max_size=3) | anything,
        "mode": anything,
        "version": anything,
    },
)


def loaded(document: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plan.yaml"
        path.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
        try:
            load(path)
        except (ScenarioError, ClusterFileError) as error:
            assert str(error).startswith(("plan.yaml", "there is no file", folder)), error
        assert [found.name for found in Path(folder).iterdir()] == ["plan.yaml"]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(documents)
def test_any_scenario_is_read_or_refused(document: dict[str, Any]) -> None:
    loaded({"cluster": CLUSTER, **document})


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(clusters)
def test_any_cluster_is_read_or_refused(cluster: dict[str, Any]) -> None:
    loaded({"cluster": {"brokers": [{"id": 1}], **cluster}})
