"""The web server around the page: its streams end with it, without waiting for browsers."""

from __future__ import annotations

import socket

import uvicorn

from controller.ui.web import Site


class PageServer(uvicorn.Server):  # type: ignore[misc]
    """Serves a site on a socket until a signal, or until `should_exit`."""

    def __init__(self, site: Site) -> None:
        super().__init__(
            uvicorn.Config(
                site.app(), log_level="error", access_log=False, lifespan="off", timeout_graceful_shutdown=1, ws="none"
            )
        )
        self._board = site.board

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Ends the streams, then what uvicorn ends."""
        self._board.close()
        await super().shutdown(sockets)
