"""The drawing of the state machines is that of the tables."""

from __future__ import annotations

from pathlib import Path

from controller.core import diagram
from controller.core.transitions import PARTITION_TRANSITIONS, REPLICA_TRANSITIONS

FILE = Path(__file__).parents[3] / "docs" / "state-machines.md"


def test_the_file_is_up_to_date() -> None:
    assert FILE.read_text(encoding="utf-8") == diagram.document(), "draw it anew: make docs"


def test_every_legal_transition_is_drawn_once_and_nothing_else() -> None:
    drawn = [line for line in diagram.document().splitlines() if "-->" in line and "[*]" not in line]
    legal = sum(map(len, PARTITION_TRANSITIONS.values())) + sum(map(len, REPLICA_TRANSITIONS.values()))
    assert len(drawn) == legal


def test_every_state_has_its_meaning() -> None:
    assert diagram.PARTITION_MEANINGS.keys() == PARTITION_TRANSITIONS.keys()
    assert diagram.REPLICA_MEANINGS.keys() == REPLICA_TRANSITIONS.keys()
