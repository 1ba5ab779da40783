"""What the sentences about a rehearsal say of links."""

from __future__ import annotations

import pytest

from controller.rehearse.answer import moves_and_links

STILL = {"troubles": {"moving": {"partitions": 0}}, "knows_links": True, "peak_link_broker": 3, "peak_link_ms": 10_000}


@pytest.mark.parametrize(
    ("share", "sentence"),
    [
        (0.714, "Links peak at 71% of broker 3's link, at 10.0 s."),
        (1.0000001, "Links peak at 100% of broker 3's link, at 10.0 s."),
        (
            3284.5,
            "Links peak at 100% of broker 3's link, at 10.0 s (clients want 3,284.50 times what it holds, and are not "
            "held back).",
        ),
    ],
)
def test_no_link_is_fuller_than_full_and_who_wants_more_is_named(share: float, sentence: str) -> None:
    assert moves_and_links({**STILL, "peak_link": share}) == [sentence]
