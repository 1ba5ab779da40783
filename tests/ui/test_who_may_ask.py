"""Who may read and press: this page under its own address, with the token; everybody else is told why not."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.ui import web
from controller.ui.actions import ACTIONS, ActionRefused, perform
from controller.ui.board import Board
from controller.ui.command import hosts_of
from controller.ui.web import Site
from tests.ui.served import Served, served

TOKEN = "a-token"
ASKED = json.dumps({"action": "broker.kill", "id": 2}).encode()


@pytest.fixture(scope="module")
def pressed() -> list[bytes]:
    return []


@pytest.fixture(scope="module")
def page(pressed: list[bytes]) -> Iterator[Served]:
    def press(body: bytes) -> str:
        pressed.append(body)
        if b"9" in body:
            raise ActionRefused("there is no broker 9")
        return "done"

    async def why(target: str) -> str:
        return f"{target} is in order"

    site = Site(board=Board(), hosts=frozenset(), why=why, perform=press, token=TOKEN, report=b"<p>report</p>")
    with served(site) as running:
        running.run(running.site.board.put, "brokers", {})
        yield running


def press(page: Served, body: bytes = ASKED, **headers: str) -> tuple[int, str]:
    own = {"origin": f"http://{page.host}", "x_kwob_token": TOKEN}
    status, text, _ = page.ask("/api/actions", method="POST", body=body, **{**own, **headers})
    return status, text


def test_every_answer_forbids_what_comes_from_elsewhere(page: Served) -> None:
    for path in ("/", "/static/app.js", "/api/site", "/nothing", "/api/actions"):
        _, _, headers = page.ask(path)
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy, path
        assert headers["x-content-type-options"] == "nosniff" and "frame-ancestors 'none'" in policy


def test_the_page_loads_nothing_from_elsewhere(page: Served) -> None:
    texts = [page.ask(path)[1] for path in ("/", *(f"/static/{name}" for name in web._ASSETS))]
    for text in texts:
        assert "http://" not in text and "https://" not in text and "style=" not in text and "onclick" not in text


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8090", "127.0.0.1", "", "127.0.0.1:1"])
def test_another_name_for_this_address_is_refused(page: Served, host: str) -> None:
    status, text, _ = page.ask("/api/site", host=host)
    assert (status, page.host in text) == (403, True)


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
    ],
)
def test_another_site_can_neither_read_nor_press(page: Served, pressed: list[bytes], headers: dict[str, str]) -> None:
    assert page.ask("/api/site", **headers)[0] == 403
    before = len(pressed)
    assert press(page, **headers)[0] == 403
    assert len(pressed) == before


def test_a_button_needs_the_token_and_an_origin(page: Served, pressed: list[bytes]) -> None:
    assert press(page) == (200, "done")
    assert pressed[-1] == ASKED
    before = len(pressed)
    assert press(page, x_kwob_token="another")[0] == 403
    assert press(page, x_kwob_token="")[0] == 403
    assert page.ask("/api/actions", method="POST", body=ASKED, x_kwob_token=TOKEN)[0] == 403
    assert press(page, b"x" * 5000)[0] == 413
    assert len(pressed) == before
    assert press(page, b'{"id": 9}') == (409, "there is no broker 9\n")


def test_without_a_token_nothing_can_be_pressed(page: Served) -> None:
    with served(Site(board=Board(), hosts=frozenset(), perform=lambda body: "done")) as reading:
        status, text = press(reading)
        assert status == 403 and "read-only" in text
        assert json.loads(reading.ask("/api/site")[1])["actions"] == {}
        assert reading.ask("/api/why?target=t")[0] == 404


def test_why_answers_and_refuses_what_is_no_target(page: Served) -> None:
    assert page.ask("/api/why?target=orders-3")[:2] == (200, "orders-3 is in order")
    assert page.ask("/api/why")[0] == page.ask("/api/why?target=" + "x" * 400)[0] == 400
    assert page.ask("/static/../web.py")[0] == page.ask("/static/secret")[0] == 404
    assert page.ask("/api/rehearsals/0")[0] == 404


def test_a_report_runs_in_a_frame_that_reaches_nothing(page: Served) -> None:
    status, text, headers = page.ask("/report")
    assert (status, text) == (200, "<p>report</p>")
    assert headers["content-security-policy"].startswith("sandbox allow-scripts; default-src 'none'")


def test_browsers_that_go_away_are_forgotten_and_too_many_are_told(
    page: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web, "STREAMS_MAX", 200)
    monkeypatch.setattr(web, "_HEARTBEAT_S", 0.1)
    open_streams = []
    for _ in range(200):
        connection = http.client.HTTPConnection("127.0.0.1", page.port, timeout=10)
        connection.request("GET", "/api/stream", headers={"host": page.host})
        answer = connection.getresponse()
        assert answer.readline() == b'data: {"brokers":{}}\n'
        open_streams.append((connection, answer))
    status, text, _ = page.ask("/api/stream")
    assert (status, text) == (503, "200 pages follow already; close one\n")
    for connection, answer in open_streams:
        answer.close()
        connection.close()
    limit = time.monotonic() + 10
    while page.site.streams:
        assert time.monotonic() < limit, f"{len(page.site.streams)} streams of browsers that are gone"
        time.sleep(0.05)


BAD = [b"", b"[]", b"{", b'{"action": 1}', b'{"action": "broker.kill", "id": "2"}', b'{"action": "rm", "id": 1}',
       b'{"action": "broker.kill", "id": 1, "more": 1}']  # fmt: skip


@pytest.mark.parametrize("body", BAD)
def test_what_is_no_action_is_refused_before_anything_is_done(tmp_path: Path, body: bytes) -> None:
    with pytest.raises(ActionRefused):
        perform(tmp_path, body)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ACTIONS)
def test_an_action_without_a_cluster_says_so(tmp_path: Path, name: str) -> None:
    if name != "faults.heal":
        with pytest.raises(ActionRefused, match=r"kwob up|no cluster|no such|cluster\.json"):
            perform(tmp_path, json.dumps({"action": name, "id": 1}).encode())


@pytest.mark.parametrize(
    ("host", "port", "asked"),
    [("127.0.0.1", 8090, "localhost:8090"), ("127.0.0.1", 80, "127.0.0.1"), ("127.0.0.1", 80, "localhost:80"),
     ("::1", 80, "[::1]"), ("My-Laptop", 8090, "my-laptop:8090"), ("my-laptop", 8090, "My-Laptop:8090")],
)  # fmt: skip
def test_a_page_is_found_as_browsers_write_its_address(host: str, port: int, asked: str) -> None:
    """Names in small letters, and no port where it is that of http."""
    assert asked.lower() in hosts_of(host, port)


def test_a_page_at_another_port_is_not_found_without_it() -> None:
    assert "localhost" not in hosts_of("127.0.0.1", 8090)
