"""What docs/tools.md shows is what the tools print."""

from __future__ import annotations

import pytest

from .transcripts import FILE, rewritten


@pytest.mark.sim
def test_the_transcripts_are_those_of_the_tools() -> None:
    text = FILE.read_text(encoding="utf-8")
    assert text.count("\n$ kwob ") >= 12
    assert rewritten(text) == text, "write them anew: python -m tests.features.transcripts"
