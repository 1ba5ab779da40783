"""What one replica alone has is at risk: as long as the others lack it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.worlds.rehearsals import brokers, play, topic


def test_what_a_follower_has_copied_again_is_at_risk_no_more(tmp_path: Path) -> None:
    """A hundred seconds of writing are, when it is back; while it catches up, less and less."""
    outcome = play(
        tmp_path,
        cluster={
            "brokers": brokers(2, link_bytes_per_s=7e6),
            "topics": {"t": topic([1, 2], bytes=0, in_bytes_per_s=5e6)},
        },
        events=[{"do": "kill", "at": 10, "broker": 2, "for": 100}],
    )
    assert outcome.moved_bytes > 1.2e9, "all that was written meanwhile, too"
    assert outcome.at_risk_bytes == pytest.approx(5e6 * 100, rel=0.03)
    assert outcome.at_risk_ms == pytest.approx(110_000, abs=2_000)
