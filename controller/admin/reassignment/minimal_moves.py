"""A reassignment that moves as little as can be, and is as even as the one that Kafka's generate proposes. Pure.

Kafka places every partition anew, so that nearly all data moves even when one broker is added. Here Kafka's proposal
only sets the bounds: no broker gets more leaders, or replicas of a topic, than the fullest one has there (of its rack,
when racks count), nor more replicas in all than its even share of what its rack has there; every partition is on as
many racks. There is always such an answer: what Kafka's proposal has in a rack could be divided evenly. The least is
taken but for rare cases in which the least sets of replicas leave a partition no leader within the bounds; then leaders
are chosen first. Kafka's own is taken where it moves less.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from controller.admin.reassignment.flow import Flow
from controller.rules.placement import BrokerRack
from controller.wire.types import BrokerId, TopicPartition

Layout = Mapping[TopicPartition, Sequence[BrokerId]]


def moves(current: Layout, target: Layout) -> int:
    """How many replicas have to be copied to get from one layout to the other."""
    return sum(len(set(replicas) - set(current.get(p, ()))) for p, replicas in target.items())


def minimal(
    current: Layout, brokers: Sequence[BrokerRack], proposal: Layout
) -> dict[TopicPartition, tuple[BrokerId, ...]]:
    """Replicas for the partitions of `proposal`, which is Kafka's on these brokers; see the module.

    Replicas that stay keep their order, and a preferred leader stays one where the bound on leaders allows it.
    """
    racks = {b.broker_id: b.rack for b in brokers}
    sets = _replica_sets(current, racks, proposal, {})
    leaders = _leaders(current, sets, proposal)
    if leaders is None:
        # The least sets leave some partition no leader within the bound: choose leaders first, then the least sets.
        leaders = _leaders(current, dict.fromkeys(proposal, sorted(racks)), proposal)
        assert leaders is not None, "those of the proposal are within its own bounds"
        sets = _replica_sets(current, racks, proposal, leaders)
    result = {p: _ordered(current.get(p, ()), sets[p], leaders[p]) for p in proposal}
    whole = all(len(result[p]) == len(proposal[p]) and leaders[p] in sets[p] for p in proposal)
    if whole and moves(current, result) <= moves(current, proposal):
        return result
    return {p: tuple(replicas) for p, replicas in proposal.items()}


def _ordered(current: Sequence[BrokerId], chosen: Sequence[BrokerId], leader: BrokerId) -> tuple[BrokerId, ...]:
    stay = [b for b in current if b in chosen and b != leader]
    new = [b for b in chosen if b not in current and b != leader]
    return (leader, *stay, *new)


@dataclass(slots=True)
class _Bounds:
    """The most that a broker may have: of one topic, and in all."""

    of_topic: dict[tuple[str, BrokerId], int] = field(default_factory=dict)
    in_all: dict[BrokerId, int] = field(default_factory=dict)


def _bounds(
    proposal: Layout, racks: Mapping[BrokerId, str | None], listed: Callable[[Sequence[BrokerId]], Sequence[BrokerId]]
) -> _Bounds:
    """`listed` says which of a partition's replicas count. The fullest broker of a rack sets the bound of the rack."""
    totals = Counter(b for replicas in proposal.values() for b in listed(replicas))
    topics = {p.topic for p in proposal}
    of_topic = Counter((p.topic, b) for p, replicas in proposal.items() for b in listed(replicas))
    most: Counter[Hashable] = Counter()
    for broker, rack in racks.items():
        most[rack] = max(most[rack], totals[broker])
        for topic in topics:
            most[topic, rack] = max(most[topic, rack], of_topic[topic, broker])
    return _Bounds(
        of_topic={(t, b): most[t, rack] for t in topics for b, rack in racks.items()},
        in_all={b: most[rack] for b, rack in racks.items()},
    )


def _even_shares(proposal: Layout, racks: Mapping[BrokerId, str | None]) -> dict[BrokerId, int]:
    """Rounded up. Where topics are many and small, chance gives the fullest broker far more."""
    totals = Counter(racks[broker] for replicas in proposal.values() for broker in replicas)
    sizes = Counter(racks.values())
    return {broker: -(-totals[rack] // sizes[rack]) for broker, rack in racks.items()}


def _replica_sets(
    current: Layout,
    racks: Mapping[BrokerId, str | None],
    proposal: Layout,
    leaders: Mapping[TopicPartition, BrokerId],
) -> dict[TopicPartition, list[BrokerId]]:
    """The brokers of each partition: source -> partition -> rack -> broker of the topic -> broker -> sink.

    `leaders` that are given are among them, whatever that costs: they are pushed through first.
    """
    flow = Flow()
    source, sink = flow.node(), flow.node()
    bounds = _bounds(proposal, racks, lambda replicas: replicas)
    bounds.in_all = _even_shares(proposal, racks)
    load = Counter(b for replicas in current.values() for b in replicas)
    order = sorted(racks, key=lambda b: (load[b], b))
    ends = _broker_ends(flow, bounds, sorted({p.topic for p in proposal}), order, sink)
    chosen: dict[TopicPartition, dict[BrokerId, int]] = {}
    led: list[tuple[list[list[int]], tuple[int, int, int]]] = []
    kept: list[tuple[list[list[int]], tuple[int, int, int]]] = []
    for partition, replicas in proposal.items():
        chosen[partition] = {}
        into = _rack_nodes(flow, source, racks, len(replicas))
        for broker in order:
            stays = broker in current.get(partition, ())
            node, of_topic, in_all = ends[partition.topic, broker]
            rack_node, ways = into[racks[broker]]
            edge = flow.edge(rack_node, node, 1, 0 if stays else 1)
            chosen[partition][broker] = edge
            if leaders.get(partition) == broker:
                led.append((ways, (edge, of_topic, in_all)))
            elif stays:
                kept.append((ways, (edge, of_topic, in_all)))
    fixed = {end[0] for ways, end in led if _keep(flow, ways, end)}
    for edge in fixed:
        flow.fix(edge)
    for ways, end in kept:
        _keep(flow, ways, end)
    flow.run(source, sink)
    return {p: [b for b, e in edges.items() if e in fixed or flow.used(e)] for p, edges in chosen.items()}


def _keep(flow: Flow, ways: Sequence[Sequence[int]], end: tuple[int, int, int]) -> bool:
    """Puts a replica where it is to be, if there is room; the ways into its rack are tried in order."""
    return any(flow.push((*way, *end)) for way in ways)


#: From broker of a topic to broker to sink: the node, and the two edges.
_Ends = dict[tuple[str, BrokerId], tuple[int, int, int]]


def _broker_ends(flow: Flow, bounds: _Bounds, topics: Sequence[str], order: Sequence[BrokerId], sink: int) -> _Ends:
    brokers = {}
    for broker in order:
        node = flow.node()
        brokers[broker] = (node, flow.edge(node, sink, bounds.in_all[broker]))
    ends: _Ends = {}
    for topic in topics:
        for broker in order:
            node = flow.node()
            edge = flow.edge(node, brokers[broker][0], bounds.of_topic[topic, broker])
            ends[topic, broker] = (node, edge, brokers[broker][1])
    return ends


def _rack_nodes(
    flow: Flow, source: int, racks: Mapping[BrokerId, str | None], count: int
) -> dict[str | None, tuple[int, list[list[int]]]]:
    """Per rack its node and the ways to it, as edges from the source.

    With fewer replicas than racks a rack takes one; else each takes one, and what is left goes anywhere. Without racks
    there is one "rack", which takes all.
    """
    names = sorted({str(rack) for rack in racks.values() if rack is not None})
    partition = flow.node()
    supply = flow.edge(source, partition, count)
    if not names:
        return {None: (partition, [[supply]])}
    more = flow.node()
    surplus = flow.edge(partition, more, max(0, count - len(names)))
    nodes: dict[str | None, tuple[int, list[list[int]]]] = {}
    for name in names:
        node = flow.node()
        first = flow.edge(partition, node, 1)
        beyond = flow.edge(more, node, count)
        nodes[name] = (node, [[supply, first], [supply, surplus, beyond]])
    return nodes


def _leaders(current: Layout, sets: Layout, proposal: Layout) -> dict[TopicPartition, BrokerId] | None:
    """The first replica of each partition; None when the bounds of the proposal leave one without.

    Staying the preferred leader costs nothing, a replica that has the data already 1, one that must copy it 2.
    """
    flow = Flow()
    source, sink = flow.node(), flow.node()
    everywhere: dict[BrokerId, str | None] = dict.fromkeys(
        sorted({b for layout in (sets, proposal) for replicas in layout.values() for b in replicas})
    )
    bounds = _bounds(proposal, everywhere, lambda replicas: replicas[:1])
    ends = _broker_ends(flow, bounds, sorted({p.topic for p in proposal}), list(everywhere), sink)
    edges: dict[TopicPartition, dict[BrokerId, int]] = {}
    for partition, replicas in sets.items():
        node = flow.node()
        supply = flow.edge(source, node, 1)
        before = current.get(partition, ())
        edges[partition] = {}
        for broker in replicas:
            cost = 0 if before and before[0] == broker else 1 if broker in before else 2
            end, of_topic, in_all = ends[partition.topic, broker]
            edge = flow.edge(node, end, 1, cost)
            edges[partition][broker] = edge
            if cost == 0:
                flow.push((supply, edge, of_topic, in_all))
    flow.run(source, sink)
    leaders = {p: b for p, mine in edges.items() for b, edge in mine.items() if flow.used(edge)}
    return leaders if len(leaders) == len(proposal) else None
