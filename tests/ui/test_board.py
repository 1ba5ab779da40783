"""The board: who looks gets what changed since, once, and a key that is gone is said to be."""

from __future__ import annotations

import asyncio
import json

from controller.ui.board import Board


def test_what_changed_since_a_version_comes_once() -> None:
    board = Board()
    board.put("a", 1)
    board.put("b", [1])
    assert json.loads(board.since(0)) == {"a": 1, "b": [1]}
    seen = board.version
    board.put("b", [1])
    assert board.version == seen
    board.put("b", [2])
    assert json.loads(board.since(seen)) == {"b": [2]}


def test_what_is_gone_is_said_to_who_may_have_it_and_not_to_who_comes() -> None:
    board = Board()
    board.put("a", 1)
    seen = board.version
    board.put("a", None)
    assert json.loads(board.since(seen)) == {"a": None}
    assert json.loads(board.since(0)) == {} and board.get("a") is None


def test_who_waits_is_woken_by_a_change_and_by_nothing_else() -> None:
    async def scenario() -> None:
        board = Board()
        assert not await board.wait(0, 0.01)
        waiting = asyncio.ensure_future(board.wait(0, 10))
        await asyncio.sleep(0)
        board.put("a", 1)
        assert await waiting
        assert await board.wait(0, 0.01)

    asyncio.run(scenario())
