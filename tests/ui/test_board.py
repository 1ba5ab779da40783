"""The board: who looks gets what changed since, once, and a key that is gone is said to be."""

from __future__ import annotations

import asyncio
import json
from collections.abc import MutableMapping
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from controller.ui.board import Board
from controller.ui.web import Site
from controller.world.simulated.loop import run as run_virtually


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


CHANGES = st.lists(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([1, 2, None])), max_size=3), max_size=5)


@settings(max_examples=25)
@given(CHANGES)
@example([[("a", 1)], [("b", 1)], [("a", None), ("b", 2)]])
def test_a_browser_that_takes_messages_slowly_has_what_is_on_the_board_in_the_end(
    changes: list[list[tuple[str, int | None]]],
) -> None:
    """While it takes one, the next things change. The board closes when the last of them had its message."""
    board, shown, left = Board(), dict[str, Any](), list(changes)

    async def take(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start" or board.is_closed:
            return
        if (body := message["body"].decode()).startswith("data: "):
            shown.update(json.loads(body.removeprefix("data: ")))
        if not left:
            board.close()
            return
        for key, value in left.pop(0):
            await asyncio.sleep(1)
            board.put(key, value)

    async def stay() -> Any:
        await asyncio.Event().wait()

    request = {
        "type": "http", "method": "GET", "path": "/api/stream", "query_string": b"", "headers": [(b"host", b"h")],
        "asgi": {"spec_version": "2.4"},
    }  # fmt: skip
    run_virtually(Site(board=board, hosts=frozenset({"h"})).app()(request, stay, take))
    assert {key: shown.get(key) for key in "abc"} == {key: board.get(key) for key in "abc"}
