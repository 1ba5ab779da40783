"""Every pair of states, against the tables of the specification written out a second time."""

from __future__ import annotations

import pytest

from controller.core.transitions import PartitionState as P
from controller.core.transitions import ReplicaState as R
from controller.core.transitions import legal_partition, legal_replica

ALIVE = {R.NEW, R.ONLINE, R.OFFLINE, R.DELETION_INELIGIBLE}
REPLICA_MAY_COME_FROM = {
    R.NEW: {R.NON_EXISTENT},
    R.ONLINE: ALIVE,
    R.OFFLINE: ALIVE,
    R.DELETION_STARTED: {R.OFFLINE},
    R.DELETION_SUCCESSFUL: {R.DELETION_STARTED},
    R.DELETION_INELIGIBLE: {R.OFFLINE, R.DELETION_STARTED},
    R.NON_EXISTENT: {R.DELETION_SUCCESSFUL},
}
PARTITION_MAY_COME_FROM = {
    P.NEW: {P.NON_EXISTENT},
    P.ONLINE: {P.NEW, P.ONLINE, P.OFFLINE},
    P.OFFLINE: {P.NEW, P.ONLINE, P.OFFLINE},
    P.NON_EXISTENT: {P.OFFLINE},
}


@pytest.mark.parametrize("target", R)
@pytest.mark.parametrize("current", R)
def test_replica_transition(current: R, target: R) -> None:
    assert legal_replica(current, target) is (current in REPLICA_MAY_COME_FROM[target])


@pytest.mark.parametrize("target", P)
@pytest.mark.parametrize("current", P)
def test_partition_transition(current: P, target: P) -> None:
    assert legal_partition(current, target) is (current in PARTITION_MAY_COME_FROM[target])
