"""Which connections a row about links means: every kind of row, and every pair of ends, against the rule in words."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from controller.wire.fault_rows import CutLink, SlowLink
from controller.wire.types import BrokerId

RACKS: dict[BrokerId, str | None] = {BrokerId(1): "a", BrokerId(2): "b", BrokerId(3): "a", BrokerId(4): None}
#: the columns that say who is meant: brokers, their rack, their peer
BROKERS = (None, 1, 2, (1, 4), (2, 3))
ROWS = [*itertools.product(BROKERS, (None, "a", "b"), (None, 1, 2, 4, 9))]


def of_each_kind(**columns: Any) -> list[CutLink | SlowLink]:
    return [CutLink(**columns), SlowLink(delay_ms=1, **columns)]


def is_named(broker_id: BrokerId, brokers: int | tuple[int, ...] | None, rack: str | None) -> bool:
    """By its own id and its own rack."""
    ids = (brokers,) if isinstance(brokers, int) else brokers
    return (ids is None or broker_id in ids) and (rack is None or RACKS.get(broker_id) == rack)


@pytest.mark.parametrize(("brokers", "rack", "peer"), ROWS, ids=str)
def test_a_row_is_about_links_of_those_it_names_with_their_peer_whoever_connects(
    brokers: int | tuple[int, ...] | None, rack: str | None, peer: int | None
) -> None:
    """Without a peer: about all connections that a broker it names opens, and about those that come in there."""
    rows = of_each_kind(broker=brokers, rack=rack, peer=peer)
    for row, near, far in itertools.product(rows, RACKS, (*RACKS, None)):
        ends = (near, RACKS[near], far, None if far is None else RACKS[far])
        if peer is None:
            expected = is_named(near, brokers, rack)
        elif far is None:
            expected = False
        else:
            expected = any(is_named(a, brokers, rack) and b == peer for a, b in ((near, far), (far, near)))
            assert row.is_between(far, RACKS[far], near, RACKS[near]) is expected, "whoever connects"
        assert row.is_between(*ends) is expected, ends


@pytest.mark.parametrize(("brokers", "rack", "peer"), ROWS, ids=str)
def test_a_row_concerns_every_broker_that_it_may_hold_up(
    brokers: int | tuple[int, ...] | None, rack: str | None, peer: int | None
) -> None:
    """Else the one end would not have it in force."""
    for row, near in itertools.product(of_each_kind(broker=brokers, rack=rack, peer=peer), RACKS):
        concerned = is_named(near, brokers, rack) or near == peer
        assert row.concerns(near, RACKS[near]) is concerned
        reached = [far for far in (*RACKS, None) if row.is_between(near, RACKS[near], far, far and RACKS[far])]
        assert concerned or not reached
