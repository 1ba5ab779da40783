"""`--strategy minimal`: valid, as even as Kafka's proposal, and never moving more; least by trying all small cases."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from itertools import permutations, product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.admin.commands import reassign_partitions as reassign
from controller.admin.layout.skew import measure
from controller.admin.reassignment.minimal_moves import Layout, minimal, moves
from controller.admin.reassignment.proposal import propose
from controller.rules.placement import BrokerRack, assign_replicas, draw_start
from controller.wire.types import BrokerId, TopicPartition


def test_each_topic_is_placed_with_the_counts_that_it_has() -> None:
    """The replication factor is that of partition 0, whatever the others have."""
    current = {
        TopicPartition(topic, number): tuple(map(BrokerId, range(factor)))
        for topic, factors in {"a": (1, 3), "b": (2,), "c": (3, 1, 2)}.items()
        for number, factor in enumerate(factors)
    }
    for in_stripes in (False, True):
        found = propose(current, brokers_of(dict.fromkeys(range(4))), random.Random(1), in_stripes=in_stripes)
        assert {p: len(replicas) for p, replicas in found.items()} == {
            p: {"a": 1, "b": 2, "c": 3}[p.topic] for p in current
        }


def brokers_of(racks: dict[int, str | None]) -> list[BrokerRack]:
    return [BrokerRack(broker_id=BrokerId(b), rack=r) for b, r in racks.items()]


def place(
    topics: dict[str, tuple[int, int]], brokers: list[BrokerRack], seed: int
) -> dict[TopicPartition, tuple[BrokerId, ...]]:
    chance = random.Random(seed)
    return {
        TopicPartition(topic, number): replicas
        for topic, (partitions, factor) in topics.items()
        for number, replicas in assign_replicas(
            brokers, partitions=partitions, replication_factor=factor, start=draw_start(len(brokers), chance)
        ).items()
    }


def check(current: Layout, brokers: list[BrokerRack], proposal: Layout, found: Layout) -> None:
    """Valid, within the bounds of the proposal, and no more moves than it."""
    ids = {b.broker_id for b in brokers}
    assert found.keys() == proposal.keys()
    assert all(set(r) <= ids and len(set(r)) == len(r) == len(proposal[p]) for p, r in found.items())
    everything = [*proposal], *([p for p in proposal if p.topic == t] for t in {p.topic for p in proposal})
    for partitions in everything:
        ours = measure([found[p] for p in partitions], brokers)
        kafkas = measure([proposal[p] for p in partitions], brokers)
        assert ours.replica_skew <= kafkas.replica_skew + 1e-9
        assert ours.leader_skew <= kafkas.leader_skew + 1e-9
        assert ours.rack_violations <= kafkas.rack_violations
    assert moves(current, found) <= moves(current, proposal)


@settings(max_examples=120, deadline=None)
@given(
    before=st.integers(1, 7),
    after=st.lists(st.sampled_from("abc"), min_size=1, max_size=8),
    first=st.integers(0, 4),
    aware=st.booleans(),
    shapes=st.lists(st.tuples(st.integers(1, 12), st.integers(1, 3)), min_size=1, max_size=3),
    seed=st.integers(0, 10_000),
)
def test_valid_even_and_never_more_moves_than_kafkas(
    before: int, after: list[str], first: int, aware: bool, shapes: list[tuple[int, int]], seed: int
) -> None:
    old = brokers_of(dict.fromkeys(range(before)))
    new = brokers_of({first + n: rack if aware else None for n, rack in enumerate(after)})
    topics = {f"t{n}": (count, min(factor, before, len(after))) for n, (count, factor) in enumerate(shapes)}
    current, proposal = place(topics, old, seed), place(topics, new, seed + 1)
    check(current, new, proposal, minimal(current, new, proposal))


@pytest.mark.parametrize("seed", range(40))
def test_nothing_moves_less_in_small_cases(seed: int) -> None:
    """Against all layouts of three partitions by two on three or four brokers."""
    chance = random.Random(seed)
    new = brokers_of(dict.fromkeys(range(1, 4 + seed % 2)))
    ids = [b.broker_id for b in new]
    topics = {"t": (3, 2)}
    current = {p: tuple(chance.sample(range(4), 2)) for p in place(topics, new, 0)}
    proposal = place(topics, new, seed)
    most = max(Counter(b for r in proposal.values() for b in r).values())
    led = max(Counter(r[0] for r in proposal.values()).values())
    found = minimal(current, new, proposal)
    least = min(
        moves(current, dict(zip(proposal, rows, strict=True)))
        for rows in product(list(permutations(ids, 2)), repeat=3)
        if max(Counter(b for r in rows for b in r).values()) <= most
        and max(Counter(r[0] for r in rows).values()) <= led
    )
    assert moves(current, found) == least


def test_a_new_broker_gets_its_share_and_nothing_else_moves() -> None:
    old, new = brokers_of(dict.fromkeys(range(5))), brokers_of(dict.fromkeys(range(6)))
    current, proposal = place({"t": (30, 3)}, old, 1), place({"t": (30, 3)}, new, 2)
    found = minimal(current, new, proposal)
    assert moves(current, found) == 15, "a sixth of 90"
    assert moves(current, proposal) > 40
    assert all(5 in set(found[p]) - set(current[p]) for p in current if set(found[p]) != set(current[p]))


@pytest.mark.parametrize("racks", [(None,) * 5, ("a", "b", "c", "b", "a")], ids=["without racks", "with racks"])
def test_a_new_broker_gets_its_share_of_many_small_topics(racks: tuple[str | None, ...]) -> None:
    """Of what its rack gets: Kafka's proposal by chance gives some broker far more than it has now."""
    topics = {f"t{n:02}": (1, 2) for n in range(40)}
    old, new = brokers_of(dict(enumerate(racks[:4]))), brokers_of(dict(enumerate(racks)))
    for seed in range(5):
        proposal = place(topics, new, seed)
        found = minimal(place(topics, old, 9), new, proposal)
        check(place(topics, old, 9), new, proposal, found)
        per_rack = Counter(racks[b] for replicas in proposal.values() for b in replicas)
        got = Counter(b for replicas in found.values() for b in replicas)
        shares = {b: -(-per_rack[rack] // racks.count(rack)) for b, rack in enumerate(racks)}
        assert all(got[BrokerId(b)] <= share for b, share in shares.items())
        assert got[BrokerId(4)] >= per_rack[racks[4]] - shares[4] * (racks.count(racks[4]) - 1)


def test_a_broker_that_leaves_gives_only_what_it_had() -> None:
    old, new = brokers_of(dict.fromkeys(range(6))), brokers_of(dict.fromkeys(range(5)))
    current, proposal = place({"t": (30, 3)}, old, 1), place({"t": (30, 3)}, new, 2)
    found = minimal(current, new, proposal)
    assert moves(current, found) == sum(5 in r for r in current.values())
    check(current, new, proposal, found)


def test_what_is_even_stays_as_it_is() -> None:
    brokers = brokers_of({n: "abc"[n % 3] for n in range(6)})
    current = place({"t": (12, 3), "u": (6, 2)}, brokers, 3)
    assert minimal(current, brokers, place({"t": (12, 3), "u": (6, 2)}, brokers, 4)) == current


def test_topics_of_one_partition_are_spread_together() -> None:
    """Each alone would be even anywhere; all together are not."""
    brokers = brokers_of(dict.fromkeys(range(4)))
    topics = {f"t{n:02}": (1, 1) for n in range(40)}
    current = {TopicPartition(t, 0): (BrokerId(0),) for t in topics}
    proposal = place(topics, brokers, 9)
    found = minimal(current, brokers, proposal)
    check(current, brokers, proposal, found)
    assert 0 < moves(current, found) < 40


def test_a_thousand_partitions_take_seconds() -> None:
    old, new = brokers_of(dict.fromkeys(range(20))), brokers_of(dict.fromkeys(range(21)))
    current, proposal = place({"t": (1000, 3)}, old, 1), place({"t": (1000, 3)}, new, 2)
    began = time.process_time()
    found = minimal(current, new, proposal)
    assert time.process_time() - began < 10
    assert moves(current, found) == 3000 - 20 * 143, "what is above the even share, and no more"


def test_generate_by_the_minimal_strategy(cluster: Any, tool: Any, tmp_path: Path) -> None:
    cluster.brokers = dict.fromkeys(range(4))
    cluster.topic("foo", *[(n % 3, (n + 1) % 3) for n in range(6)])
    file = tmp_path / "topics.json"
    file.write_text('{"topics":[{"topic":"foo"}]}')
    words = ["--generate", "--broker-list", "0,1,2,3", "--topics-to-move-json-file", str(file), "--json"]
    told = json.loads(tool(reassign, cluster, [*words, "--strategy", "minimal"]).out)
    before = {(r["topic"], r["partition"]): r["replicas"] for r in told["current"]["partitions"]}
    after = {(r["topic"], r["partition"]): r["replicas"] for r in told["proposed"]["partitions"]}
    changed = {p: set(after[p]) - set(before[p]) for p in before if set(after[p]) != set(before[p])}
    assert 1 <= len(changed) <= 3 and set(map(frozenset, changed.values())) == {frozenset({3})}
    kafka, plain = (json.loads(tool(reassign, cluster, [*words, *more]).out) for more in (["--strategy", "kafka"], []))
    assert plain == kafka != told, "unless asked for, the placement is Kafka's own"
    refused = tool(reassign, cluster, [*words[:-1], "--strategy", "best"])
    assert refused.err.startswith("--strategy best: must be one of kafka, minimal\n")


def scattered(seed: int) -> tuple[Layout, list[BrokerRack], Layout]:
    """Current replicas anywhere, also on brokers that are not there any more, and Kafka's proposal."""
    chance = random.Random(seed)
    racks = [chance.choice("abc") for _ in range(chance.randint(2, 7))]
    aware = chance.random() < 0.6
    brokers = brokers_of({n: rack if aware else None for n, rack in enumerate(racks)})
    topics = {
        f"t{n}": (chance.randint(1, 9), chance.randint(1, min(3, len(racks)))) for n in range(chance.randint(1, 3))
    }

    def placed() -> dict[TopicPartition, tuple[BrokerId, ...]]:
        return {
            TopicPartition(topic, number): replicas
            for topic, (count, factor) in topics.items()
            for number, replicas in assign_replicas(
                brokers, partitions=count, replication_factor=factor, start=draw_start(len(brokers), chance)
            ).items()
        }

    current = {p: tuple(map(BrokerId, chance.sample(range(8), len(r)))) for p, r in placed().items()}
    return current, brokers, placed()


@pytest.mark.parametrize("seed", [219, 228, 562, 565, 674, 763, 884])
def test_where_the_least_sets_leave_no_leader_within_the_bound_leaders_come_first(seed: int) -> None:
    current, brokers, proposal = scattered(seed)
    found = minimal(current, brokers, proposal)
    check(current, brokers, proposal, found)
    assert moves(current, found) < moves(current, proposal)


def test_where_nothing_else_is_found_it_is_kafkas_own() -> None:
    current, brokers, proposal = scattered(483)
    assert minimal(current, brokers, proposal) == proposal
