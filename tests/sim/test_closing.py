"""What is looked at once, at the end of a world: nothing is passed over since nobody answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from controller.sim import closing
from controller.sim.load.ledger import Ledger
from controller.sim.load.links import Links
from controller.wire.errors import ErrorCode
from tests.sim.test_oracles import TP, Sound, at_rest

pytestmark = pytest.mark.sim
PARTITION = (TP.topic, TP.partition)


def test_a_log_that_does_not_begin_at_0_has_lost_records() -> None:
    ledger = Ledger()
    assert not ledger.check_log(PARTITION, [])
    ledger.was_acked(PARTITION, 0, [b"a", b"b"], broker=1)
    assert "offset 0 was b'a', now None" in ledger.check_log(PARTITION, [(1, b"b")])[0]


@pytest.mark.parametrize("is_deleted", [True, False])
def test_a_group_of_which_no_coordinator_says_anything_is_told(
    tmp_path: Path, is_deleted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(closing, "COORDINATOR_TRIES", 3)
    group = "probed-0" if is_deleted else "group"

    async def look(sound: Sound) -> None:
        ledger, links = Ledger(unclean=sound.history.unclean), Links(sound.cluster, "reader")
        if is_deleted:
            ledger.deleted_groups.append(group)
        else:
            ledger.committed[group, PARTITION] = -1
        assert await closing.groups_are_wrong(sound.cluster, ledger, links, 1) == []
        loads = lambda *_, **__: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS  # noqa: E731
        groups = [broker.context.groups for broker in sound.cluster.brokers.values()]
        for each in groups:
            each.error_for = loads
        assert await closing.groups_are_wrong(sound.cluster, ledger, links, 1) == [
            f"no coordinator says what group {group} has committed"
        ]

    at_rest(tmp_path, look)
