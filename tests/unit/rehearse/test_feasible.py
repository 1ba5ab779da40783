"""What calm times ask of each broker's machine, and which limits they are beyond."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.rehearse.feasible import impossible, loads
from controller.rehearse.scenario import BrokerLimits
from controller.wire.cluster_file import ClusterShape, shape_of

MB = 1e6
NO_LIMITS = BrokerLimits()


def cluster(partitions: list[dict[str, Any]], *, of_brokers: dict[int, dict[str, float]] | None = None) -> ClusterShape:
    brokers = [{"id": broker, **(of_brokers or {}).get(broker, {})} for broker in range(4)]
    return shape_of({"brokers": brokers, "topics": {"t": {"partitions": partitions}} if partitions else {}}, "c.yaml")


@st.composite
def partitions(draw: st.DrawFn) -> dict[str, Any]:
    replicas = draw(st.lists(st.integers(0, 3), min_size=1, max_size=4, unique=True))
    isr = draw(st.lists(st.sampled_from(replicas), min_size=1, unique=True))
    return {
        "replicas": replicas,
        "isr": isr,
        "leader": draw(st.sampled_from([-1, *isr])),
        "in_bytes_per_s": draw(st.integers(0, 100)),
        "out_bytes_per_s": draw(st.integers(0, 100)),
    }


@given(st.lists(partitions(), max_size=6))
def test_who_leads_takes_what_is_written_and_sends_it_to_readers_and_each_in_sync(rows: list[dict[str, Any]]) -> None:
    """Recounted byte by byte: each has a sender and a receiver; nobody reads or writes where nobody leads."""
    came, went = dict.fromkeys(range(4), 0), dict.fromkeys(range(4), 0)
    for row in rows:
        if (leader := row["leader"]) >= 0:
            came[leader] += row["in_bytes_per_s"]
            went[leader] += row["out_bytes_per_s"]
            for follower in set(row["isr"]) - {leader}:
                came[follower] += row["in_bytes_per_s"]
                went[leader] += row["in_bytes_per_s"]
    found = loads(cluster(rows))
    for broker in range(4):
        load = found.get(broker)
        assert (load.link_in, load.link_out) == (came[broker], went[broker]) if load else not came[broker]
        assert load is None or load.disk == came[broker], "what is read comes from memory"


#: 2 leads: 6 MB/s come in and are written, 5 + 2 * 6 go out; 1 and 3 follow. The limits, whose they are -> of whom what
#: is too small
ROW = {"replicas": [2, 1, 3], "leader": 2, "in_bytes_per_s": 6 * MB, "out_bytes_per_s": 5 * MB}
LIMITS: list[tuple[dict[int, dict[str, float]], BrokerLimits, list[tuple[int, str, str]]]] = [
    ({}, NO_LIMITS, []),
    ({}, BrokerLimits(link=17_000_000), []),
    ({}, BrokerLimits(link=16_999_999), [(2, "link", "go out")]),
    ({}, BrokerLimits(disk=6_000_000), []),
    ({}, BrokerLimits(disk=5_999_999), [(1, "disk", "are written"), (2, "disk", "are written"),
                                        (3, "disk", "are written")]),
    ({}, BrokerLimits(link=1), [(1, "link", "come in"), (2, "link", "come in"), (2, "link", "go out"),
                                (3, "link", "come in")]),
    ({2: {"link_bytes_per_s": 17 * MB}}, BrokerLimits(link=6_000_000), []),
    ({2: {"link_bytes_per_s": 7 * MB}}, NO_LIMITS, [(2, "link", "go out")]),
    ({3: {"disk_bytes_per_s": 7 * MB}}, BrokerLimits(disk=5_000_000), [(1, "disk", "are written"),
                                                                       (2, "disk", "are written")]),
    ({3: {"disk_bytes_per_s": 5 * MB}}, NO_LIMITS, [(3, "disk", "are written")]),
    ({0: {"disk_bytes_per_s": 1.0, "link_bytes_per_s": 1.0}}, NO_LIMITS, []),
]  # fmt: skip


@pytest.mark.parametrize(("own", "limits", "beyond"), LIMITS)
def test_a_limit_of_a_broker_goes_before_that_of_all_and_each_that_is_too_small_is_named(
    own: dict[int, dict[str, float]], limits: BrokerLimits, beyond: list[tuple[int, str, str]]
) -> None:
    found = list(impossible(cluster([ROW], of_brokers=own), limits))
    assert [place for place, _ in found] == [("brokers", broker, f"{name}_bytes_per_s") for broker, name, _ in beyond]
    for (broker, _, way), (_, said) in zip(beyond, found, strict=True):
        assert said.startswith(f"broker {broker}: ") and f" {way} " in said
