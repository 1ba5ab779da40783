"""Dynamic configs in ZooKeeper, as every node follows them: what an entity's znode holds, and the notices of changes.

A notice in `/config/changes` only names the entity to read again. Both programs follow them here; what a change means
is theirs. What cannot be read is never taken for empty: neither the list of notices, nor a notice, nor an entity.
Source: Kafka 3.9 `ZkConfigManager`, `ZkNodeChangeNotificationListener`; spec controller.md §1.5, broker.md §17.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from structlog.typing import FilteringBoundLogger

from controller.wire import log_events as ev
from controller.wire.errors import ErrorCode, KafkaError
from controller.wire.zk_operations import Delete, Exists, GetChildren, GetData, ZkCode, ZkResult, ZkSessionExpired
from controller.wire.znodes import ConfigChangesZNode, ConfigEntityZNode, ZnodeError
from controller.world.ports import Clock, ZkOperations

#: Notices older than this are deleted by whoever lists them (`ZkNodeChangeNotificationListener`).
CHANGE_EXPIRATION_MS: Final = 15 * 60 * 1000
#: Pause before what ZooKeeper refused is asked again.
RETRY_S: Final = 1.0


class Unreadable(KafkaError):
    """What a znode holds is not known: ZooKeeper refuses to show it, or it does not parse. The message names it."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(ErrorCode.UNKNOWN_SERVER_ERROR, f"{path} cannot be read: {reason}")


def configs_of(entity_path: str, found: ZkResult) -> dict[str, str]:
    """The configs in the answer to a GetData of that entity's znode; empty where there is none. Raises: Unreadable."""
    path = ConfigEntityZNode.path(entity_path)
    _check_read(path, found.code)
    try:
        return ConfigEntityZNode.parse(found.data)
    except ZnodeError as error:
        raise Unreadable(path, str(error)) from error


async def read_configs(zk: ZkOperations, *entity_paths: str) -> list[dict[str, str]]:
    """The configs of these entities (`topics/t`, `brokers/1`), in their order. Raises: Unreadable."""
    results = await zk.perform([GetData(ConfigEntityZNode.path(entity)) for entity in entity_paths])
    return [configs_of(entity, found) for entity, found in zip(entity_paths, results, strict=True)]


class ConfigNotices:
    """Takes the notices as they come. `changed(entity_path)` acts on one.

    A KafkaError of it is logged, and the next notice is taken: the last known configs of that entity stay. If the error
    is that they cannot be read, they are asked again until they can.
    """

    def __init__(
        self,
        zk: ZkOperations,
        changed: Callable[[str], Awaitable[None]],
        *,
        clock: Clock,
        log: FilteringBoundLogger,
    ) -> None:
        self._zk, self._changed, self._clock, self._log = zk, changed, clock, log
        #: the parent of the notices by its czxid, and the number of the last one that was taken there
        self._parent, self._last = 0, -1
        self._look = asyncio.Event()
        self._unread: dict[str, None] = {}
        #: notice -> when it was made, of those that were read: they are never read again, only deleted one day
        self._made_ms: dict[str, int] = {}
        #: notices that ZooKeeper does not show: they are read again until it does
        self._refused: set[str] = set()

    def look(self) -> None:
        """Something changed, or a new session has no watch yet: `follow` lists again. Coalesces."""
        self._look.set()

    async def follow(self) -> None:
        """Takes notices after each `look`, for ever; what ZooKeeper refuses is asked again after a pause."""
        while True:
            await self._look.wait()
            self._look.clear()
            try:
                await self.take()
            except ZkSessionExpired:
                continue  # the next session brings a look
            except Unreadable as error:  # the watch may not be armed, so nothing else would call for the next look
                self._log.error(ev.ZK_READ_REFUSED, reason=error.message)
                self._look_later()

    def _look_later(self) -> None:
        asyncio.get_running_loop().call_later(RETRY_S, self._look.set)

    async def take(self) -> None:
        """Lists the notices (which arms the watch), acts on the new ones in order, deletes the old ones. Those that
        cannot be read, and what they name and cannot be read, are asked again later, by `follow`; none hides those
        behind it, as it does in Kafka until the next change.

        Raises: Unreadable, when ZooKeeper does not let them be listed, or their parent is gone.
        """
        for entity_path in list(self._unread):
            await self._act(entity_path)
        parent, listed = await self._zk.perform(
            [Exists(ConfigChangesZNode.path), GetChildren(ConfigChangesZNode.path, watch=True)]
        )
        if parent.stat is None or not listed.ok:  # gone too: a list that is not there arms no watch
            raise Unreadable(ConfigChangesZNode.path, listed.code.name)
        if parent.stat.czxid != self._parent:  # made anew, whose notices are numbered from 0 again
            self._parent, self._last, self._made_ms, self._refused = parent.stat.czxid, -1, {}, set()
        numbered = ConfigChangesZNode.notices(listed.children)
        paths = {f"{ConfigChangesZNode.path}/{name}": number for number, name in numbered}
        self._made_ms = {path: made_ms for path, made_ms in self._made_ms.items() if path in paths}
        self._refused &= paths.keys()
        await self._read([(number, path) for path, number in paths.items() if path not in self._made_ms])
        now_ms = self._clock.now_ms()
        old = [path for path, made_ms in self._made_ms.items() if now_ms - made_ms > CHANGE_EXPIRATION_MS]
        await self._zk.perform([Delete(path) for path in old])
        if self._unread or self._refused:
            self._look_later()

    async def _read(self, numbered: Sequence[tuple[int, str]]) -> None:
        notices = await self._zk.perform([GetData(path) for _, path in numbered])
        for (number, path), notice in zip(numbered, notices, strict=True):
            if number > self._last or path in self._refused:
                if notice.ok:
                    await self._take_one(path, notice.data)
                    self._refused.discard(path)
                elif notice.code is not ZkCode.NO_NODE and path not in self._refused:
                    self._log.warning(ev.CONFIG_REFUSED, path=path, reason=notice.code.name)
                    self._refused.add(path)
                self._last = max(number, self._last)  # not before: a session that ends must not lose the change
            if notice.stat is not None:
                self._made_ms[path] = notice.stat.ctime

    async def _take_one(self, path: str, data: bytes | None) -> None:
        entity_path = ConfigChangesZNode.decode(data)
        if entity_path is None:
            self._log.warning(ev.CONFIG_REFUSED, path=path, reason="the notice does not parse")
            return
        self._unread.pop(entity_path, None)
        await self._act(entity_path)

    async def _act(self, entity_path: str) -> None:
        try:
            await self._changed(entity_path)
        except Unreadable as error:
            if entity_path not in self._unread:
                self._log.warning(ev.CONFIG_REFUSED, entity_path=entity_path, reason=error.message)
            self._unread[entity_path] = None
            return
        except KafkaError as error:
            self._log.warning(ev.CONFIG_REFUSED, entity_path=entity_path, reason=error.message)
        self._unread.pop(entity_path, None)


def _check_read(path: str, code: ZkCode) -> None:
    """Raises: Unreadable, for what is neither found nor missing: it must not count as empty."""
    if code not in (ZkCode.OK, ZkCode.NO_NODE):
        raise Unreadable(path, code.name)
