"""What is wrong with settings, by their places; whether they are wrong is asked of all of them together."""

from __future__ import annotations

from typing import Any

import pytest

from controller.rehearse.wrong_settings import in_cluster, in_scenario, together
from controller.wire.cluster_file import ClusterShape, shape_of

WAIT, LAG = "replica.fetch.wait.max.ms", "replica.lag.time.max.ms"
TOO_LONG = f"settings: {WAIT} must be at most {LAG}"


def shape(configs: dict[str, str], **topics: dict[str, str]) -> ClusterShape:
    made: dict[str, Any] = {name: {"configs": own, "partitions": [[1]]} for name, own in topics.items()}
    return shape_of({"brokers": [{"id": 1}], "configs": configs, "topics": made}, "here")


def test_of_a_scenario() -> None:
    given = {"min.insync.replicas": "0", LAG: "100", "num.partitions": "5", "min.insync.replica": "2"}
    found = {place[-1]: message for place, message in in_scenario(given, shape({}))}
    assert list(found) == ["min.insync.replicas", LAG, "min.insync.replica"]
    assert found["min.insync.replicas"].startswith("setting min.insync.replicas: value '0' is not allowed; allowed: a")
    assert found[LAG] == TOO_LONG and found["min.insync.replica"].startswith("unknown setting min.insync.replica ")


#: of the cluster, of the scenario -> where one is wrong, and whether all are
PAIRS: list[tuple[dict[str, str], dict[str, str], list[str], bool]] = [
    ({}, {LAG: "100"}, [f"settings.{LAG}"], True),
    ({LAG: "100"}, {}, [f"configs.{LAG}"], True),
    ({}, {LAG: "100", WAIT: "100"}, [], False),
    ({LAG: "100"}, {WAIT: "100"}, [], False),
    ({WAIT: "100"}, {LAG: "100"}, [], False),
    ({LAG: "100"}, {LAG: "30000"}, [], False),
    ({WAIT: "5000"}, {LAG: "4000"}, [], True),
    ({"num.partitions": "x"}, {}, ["configs.num.partitions"], True),
]


@pytest.mark.parametrize(("of_cluster", "of_scenario", "places", "are_wrong"), PAIRS)
def test_what_goes_together(
    of_cluster: dict[str, str], of_scenario: dict[str, str], places: list[str], are_wrong: bool
) -> None:
    cluster = shape(of_cluster)
    found = [*in_scenario(of_scenario, cluster), *in_cluster(cluster, of_scenario)]
    assert [".".join(map(str, place)) for place, _ in found] == places
    assert bool(list(together(cluster, of_scenario))) is are_wrong


def test_of_topics() -> None:
    configs = {"retention.ms": "1", "cleanup.policy": "keep", "min.insync.replicas": "two", "no.such": "x"}
    found = list(in_cluster(shape({}, **{"..": {}, "t": configs}), {}))
    below = ("topics", "t", "configs")
    assert [place for place, _ in found] == [
        ("topics", ".."), (*below, "min.insync.replicas"), (*below, "cleanup.policy"), (*below, "min.insync.replicas"),
    ]  # fmt: skip
    assert [message.removeprefix("topics.t.configs.") for _, message in found] == [
        "topics: Topic name is invalid: '..' is not allowed",
        "min.insync.replicas: expected a whole number, not 'two'",
        "cleanup.policy: Invalid value keep for configuration cleanup.policy: String must be one of: compact, delete",
        "min.insync.replicas: Invalid value two for configuration min.insync.replicas: Not a number of type INT",
    ]
