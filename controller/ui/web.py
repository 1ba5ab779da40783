"""The web application: one page, a stream of what changes, answers to `why`, and the buttons.

Read-only unless it was made with a token. Whoever asks must do so under the address that is served (no other site can
read or press anything, also not through a name that points here), and nothing is loaded from elsewhere.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, Final

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from controller.ui.actions import ACTIONS, ActionRefused
from controller.ui.board import Board

#: Browsers that may follow at a time; the next one is told so.
STREAMS_MAX: Final = 250
TOKEN_HEADER: Final = "x-kwob-token"
#: A comment goes out so often where nothing changes, so that a browser that went away is noticed.
_HEARTBEAT_S: Final = 10.0
#: The least time between two messages to a browser.
_MESSAGE_S: Final = 0.1
_BODY_MAX: Final = 4_096
_TARGET_MAX: Final = 300
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
#: A report is a file of its own with its scripts in it: it runs in a frame that can reach nothing.
_REPORT_POLICY: Final = (
    "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data:; frame-ancestors 'self'"
)
_ASSETS: Final = {
    "app.js": "text/javascript",
    "matrix.js": "text/javascript",
    "rehearsal.js": "text/javascript",
    "style.css": "text/css",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What is served. `why(target)` answers in words; `perform(body)` does what a button asks for, and blocks.

    `hosts`: what a request may name as its host. `token` None: read-only. `rehearsals`: by name, how each is read; that
    blocks, and raises ValueError for what cannot be read. `report` is shown as given.
    """

    board: Board
    hosts: frozenset[str]
    why: Callable[[str], Awaitable[str]] | None = None
    perform: Callable[[bytes], str] | None = None
    token: str | None = None
    rehearsals: Mapping[str, Callable[[], Mapping[str, Any]]] = field(default_factory=dict)
    report: bytes | None = None
    streams: set[object] = field(default_factory=set)

    def app(self) -> ASGIApp:
        """The ASGI application."""
        routes = [
            Route("/", self._page),
            Route("/static/{name}", self._asset),
            Route("/api/site", self._site),
            Route("/api/stream", self._stream),
            Route("/api/why", self._why),
            Route("/api/rehearsals/{number:int}", self._rehearsal),
            Route("/report", self._report),
            Route("/api/actions", self._act, methods=["POST"]),
        ]
        return Starlette(routes=routes, middleware=[Middleware(_Guard, hosts=self.hosts)])

    async def _page(self, request: Request) -> Response:
        return Response(_static("index.html"), media_type="text/html")

    async def _asset(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in _ASSETS:
            return PlainTextResponse("there is no such file\n", 404)
        return Response(_static(name), media_type=_ASSETS[name])

    async def _site(self, request: Request) -> Response:
        """What this page can do."""
        return JSONResponse(
            {
                "actions": {name: text for name, (_, text) in ACTIONS.items()} if self.token is not None else {},
                "why": self.why is not None,
                "rehearsals": list(self.rehearsals),
                "report": self.report is not None,
            }
        )

    async def _stream(self, request: Request) -> Response:
        if len(self.streams) >= STREAMS_MAX:
            return PlainTextResponse(f"{STREAMS_MAX} pages follow already; close one\n", 503)
        return StreamingResponse(self._changes(), media_type="text/event-stream")

    async def _changes(self) -> AsyncIterator[bytes]:
        """All that is on the board, then what changes; ends with the browser."""
        mark = object()
        self.streams.add(mark)
        try:
            version = 0
            while not self.board.is_closed:
                if await self.board.wait(version, _HEARTBEAT_S):
                    data, version = self.board.since(version), self.board.version
                    yield b"data: " + data + b"\n\n"
                    await asyncio.sleep(_MESSAGE_S)
                else:
                    yield b": nothing changed\n\n"
        finally:
            self.streams.discard(mark)

    async def _why(self, request: Request) -> Response:
        target = request.query_params.get("target", "")
        if self.why is None:
            return PlainTextResponse("there is no cluster to ask about\n", 404)
        if not target or len(target) > _TARGET_MAX:
            return PlainTextResponse("target: a topic, or a partition such as orders-3\n", 400)
        return PlainTextResponse(await self.why(target))

    async def _rehearsal(self, request: Request) -> Response:
        number = request.path_params["number"]
        if number >= len(self.rehearsals):
            return PlainTextResponse("there is no such rehearsal\n", 404)
        read = list(self.rehearsals.values())[number]
        try:
            return JSONResponse(await run_in_threadpool(read))
        except ValueError as error:
            return PlainTextResponse(f"{error}\n", 409)

    async def _report(self, request: Request) -> Response:
        if self.report is None:
            return PlainTextResponse("no report was given: kwob ui --report FILE\n", 404)
        return Response(self.report, media_type="text/html", headers={"content-security-policy": _REPORT_POLICY})

    async def _act(self, request: Request) -> Response:
        if self.token is None or self.perform is None:
            return PlainTextResponse("this page is read-only; start it with: kwob ui --actions\n", 403)
        if not hmac.compare_digest(request.headers.get(TOKEN_HEADER, "").encode(), self.token.encode()):
            return PlainTextResponse("the token is wrong; open the address that kwob ui printed\n", 403)
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > _BODY_MAX:
                return PlainTextResponse(f"at most {_BODY_MAX} bytes\n", 413)
        try:
            return PlainTextResponse(await run_in_threadpool(self.perform, body))
        except ActionRefused as error:
            return PlainTextResponse(f"{error}\n", 409)


class _Guard:
    """Refuses requests from elsewhere, and gives every answer its headers."""

    def __init__(self, app: ASGIApp, hosts: frozenset[str]) -> None:
        self._app, self._hosts = app, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                have = {name for name, _ in message["headers"]}
                message["headers"] = [*message["headers"], *((n, v) for n, v in _HEADERS if n not in have)]
            await send(message)

        refusal = self._refusal(scope["method"], headers)
        if refusal is None:
            await self._app(scope, receive, guarded)
        else:
            await PlainTextResponse(f"{refusal}\n", 403)(scope, receive, guarded)

    def _refusal(self, method: str, headers: Mapping[str, str]) -> str | None:
        host = headers.get("host", "").lower()
        if host not in self._hosts:
            return f"this page is served as {' or '.join(sorted(self._hosts))}, not as {host[:80]!r}"
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2].lower() != host:
            return "requests from other sites are refused"
        if headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
            return "requests from other sites are refused"
        if method == "POST" and origin is None:
            return "a request that changes something must name its origin"
        return None


_HEADERS: Final = (
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)


def _static(name: str) -> bytes:
    return files("controller.ui").joinpath("static", name).read_bytes()
