"""Each address of a page: what is answered there, with what status and type; and the rehearsals that it can show."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from controller.rehearse.files import OUTCOME_FILE, OUTCOME_VERSION, OutError
from controller.ui.board import Board
from controller.ui.rehearsals import found
from controller.ui.web import Site as Page
from tests.ui.served import Served, served

TIMELINE = {"at_ms": [0, 5], "offline": [0, 1]}
BROKERS = {"at_ms": [0], "broker": [1]}


def rehearsal(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / OUTCOME_FILE).write_text(json.dumps({"version": OUTCOME_VERSION, "answer": "it holds"}))
    for name, columns in (("timeline", TIMELINE), ("brokers", BROKERS)):
        pq.write_table(pa.table(columns), folder / f"{name}.parquet")
    return folder


def shown(folder: Path) -> dict[str, Any]:
    summary = {"version": OUTCOME_VERSION, "answer": "it holds"}
    return {"folder": str(folder), "summary": summary, "timeline": TIMELINE, "brokers": BROKERS}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    for name in ("b", "a"):
        rehearsal(folder / name)
    (rehearsal(folder / "torn") / "timeline.parquet").write_bytes(b"PAR1")
    return folder


@pytest.fixture(scope="module")
def pages(runs: Path) -> Iterator[tuple[Served, Served]]:
    """One with all that a page can have, and one with nothing."""

    async def why(target: str) -> str:
        return f"{target} is in order"

    rich = Page(
        board=Board(), hosts=frozenset(), why=why, perform=lambda body: "done", token="t", rehearsals=found([runs]),
        report=b"<p>report</p>",
    )  # fmt: skip
    with served(rich) as full, served(Page(board=Board(), hosts=frozenset())) as bare:
        yield full, bare


LONG = "x" * 301
#: address -> status, type, and how the text begins; of the page with everything, and of the one with nothing
ANSWERS: dict[str, tuple[tuple[int, str, str], tuple[int, str, str]]] = {
    "/": ((200, "text/html", "<!doctype html>"),) * 2,
    "/static/app.js": ((200, "text/javascript", "/"),) * 2,
    "/static/style.css": ((200, "text/css", ""),) * 2,
    "/static/index.html": ((404, "text/plain", "there is no such file\n"),) * 2,
    "/static/nothing.js": ((404, "text/plain", "there is no such file\n"),) * 2,
    "/api/why?target=t": ((200, "text/plain", "t is in order"), (404, "text/plain", "there is no cluster to ask")),
    "/api/why": ((400, "text/plain", "target: a topic"), (404, "text/plain", "there is no cluster to ask")),
    f"/api/why?target={LONG[:300]}": (
        (200, "text/plain", "xxx"), (404, "text/plain", "there is no cluster to ask"),
    ),
    f"/api/why?target={LONG}": (
        (400, "text/plain", "target: a topic"), (404, "text/plain", "there is no cluster to ask"),
    ),
    "/report": ((200, "text/html", "<p>report</p>"), (404, "text/plain", "no report was given: kwob ui --report FILE")),
    "/api/rehearsals/2": (
        (409, "text/plain", "{runs}/torn cannot be read: "), (404, "text/plain", "there is no such rehearsal"),
    ),
    "/api/rehearsals/3": ((404, "text/plain", "there is no such rehearsal"),) * 2,
    "/nothing": ((404, "text/plain", "Not Found"),) * 2,
}  # fmt: skip


@pytest.mark.parametrize("path", ANSWERS)
def test_what_is_answered_where(path: str, pages: tuple[Served, Served], runs: Path) -> None:
    for page, (status, kind, begin) in zip(pages, ANSWERS[path], strict=True):
        found_status, text, headers = page.ask(path)
        assert (found_status, headers["content-type"].partition(";")[0]) == (status, kind)
        assert text.lower().startswith(begin.format(runs=runs).lower())


def test_a_page_says_what_it_can_do_and_shows_its_rehearsals(pages: tuple[Served, Served], runs: Path) -> None:
    full, bare = pages
    site = json.loads(full.ask("/api/site")[1])
    assert site["actions"].pop("broker.kill") == "kill" and len(site.pop("actions")) == 9
    names = [str(runs / name) for name in ("a", "b", "torn")]
    assert site == {"why": True, "rehearsals": names, "report": True}
    assert json.loads(bare.ask("/api/site")[1]) == {"actions": {}, "why": False, "rehearsals": [], "report": False}
    assert json.loads(full.ask("/api/rehearsals/1")[1]) == shown(runs / "b")


def test_which_folders_are_rehearsals(runs: Path, tmp_path: Path) -> None:
    inner = rehearsal(rehearsal(tmp_path / "own") / "inner").parent
    assert list(found([inner, runs])) == [str(inner), *(str(runs / name) for name in ("a", "b", "torn"))]
    assert found([inner])[str(inner)]() == shown(inner)
    with pytest.raises(OutError, match="is not the folder of a rehearsal"):
        found([tmp_path / "nowhere"])
    (inner / "brokers.parquet").unlink()
    with pytest.raises(OutError, match="own cannot be read: "):
        found([inner])[str(inner)]()
