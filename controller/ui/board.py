"""What the page shows, by key, with a version each: whoever looks gets what changed since its last look.

Memory does not grow with the browsers: nothing is kept for each. Values are JSON, encoded once. For one event loop.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final

#: The value of a key that is there no longer.
GONE: Final = b"null"


class Board:
    """Keys and their values."""

    def __init__(self) -> None:
        self.version = 0
        self.is_closed = False
        self._values: dict[str, tuple[int, bytes]] = {}
        self._changed = asyncio.Event()
        self._notes: dict[str, str] = {}

    def note(self, about: str, text: str | None) -> None:
        """What the page says besides of a look (None: nothing any more), under the key `notes`."""
        if text is None:
            self._notes.pop(about, None)
        else:
            self._notes[about] = text
        self.put("notes", self._notes)

    def put(self, key: str, value: Any) -> None:
        """The value of a key is now this (None: it is gone); nothing happens when it is what it was."""
        data = json.dumps(value, separators=(",", ":")).encode()
        before = self._values.get(key)
        if before is not None and before[1] == data:
            return
        self.version += 1
        self._values[key] = (self.version, data)
        self._changed.set()
        self._changed = asyncio.Event()

    def get(self, key: str) -> Any:
        """A value; None where there is none."""
        return json.loads(self._values.get(key, (0, GONE))[1])

    def since(self, version: int) -> bytes:
        """One JSON object with the keys that changed after that version; from 0 on, all that are there."""
        rows = (
            json.dumps(key).encode() + b":" + data
            for key, (changed, data) in self._values.items()
            if changed > version and (version or data != GONE)
        )
        return b"{" + b",".join(rows) + b"}"

    def close(self) -> None:
        """Nothing will change any more: who waits is woken."""
        self.is_closed = True
        self._changed.set()

    async def wait(self, version: int, timeout_s: float) -> bool:
        """Until something is newer than that version. Returns False when the time is over first."""
        try:
            async with asyncio.timeout(timeout_s):
                while self.version <= version and not self.is_closed:
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True
