"""Alterations of configs by either request: from whatever may stand there to whatever may be asked for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import product
from typing import Any, Final

from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey
from controller.wire.zk_operations import Create, Delete, GetChildren, GetData
from controller.wire.znodes import ConfigChangesZNode, ConfigEntityZNode
from controller.world.simulated.znode_tree import ZnodeTree

TOPIC, BROKER = 2, 4
SET, DELETE = 0, 1
_NAMES: Final = {TOPIC: ("retention.ms", "segment.ms"), BROKER: ("log.retention.ms", "log.roll.ms")}


async def check_alterations(tree: ZnodeTree, ask: Callable[[ApiKey, dict[str, Any]], Awaitable[Any]], own: int) -> None:
    """Of the topic `t`, of the broker that is asked, whose id is `own`, and of all brokers: what was asked for stands
    there then, and brokers hear of it, also of what stays as it was (as in Kafka); of what was only to be validated
    nobody hears. `ask` returns the error code of the answer."""
    _announced(tree)
    for kind, name, entity in ((TOPIC, "t", "topics/t"), (BROKER, str(own), f"brokers/{own}"),
                               (BROKER, "", "brokers/<default>")):  # fmt: skip
        path, (one, two) = f"/config/{entity}", _NAMES[kind]
        stood: list[dict[str, str] | None] = [None, {}, {one: "5"}, {one: "5", two: "6"}]
        becomes: list[dict[str, str]] = [{}, {one: "5"}, {two: "7", one: "6"}]
        apis = (ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS)
        for before, after, api, only in product(stood, becomes, apis, (True, False)):
            tree.write(Delete(path), session=0, now_ms=0)
            if before is not None:
                tree.write(Create(path, ConfigEntityZNode.encode(before)), session=0, now_ms=0)
            change = {"resource_type": kind, "resource_name": name, "configs": _edits(api, before or {}, after)}
            assert await ask(api, {"resources": [change], "validate_only": only}) == ErrorCode.NONE
            found = tree.get(path)
            stands = None if found is None else ConfigEntityZNode.parse(found.payload)
            assert stands == (before if only else after), f"{entity}, {before}, {after}, {api.name}"
            assert _announced(tree) == ([] if only else [entity])


def _edits(api: ApiKey, before: dict[str, str], after: dict[str, str]) -> list[dict[str, Any]]:
    """All configs of a replacement; of an edit what changes alone, since the rest stays."""
    if api is ApiKey.ALTER_CONFIGS:
        return [{"name": name, "value": value} for name, value in after.items()]
    changed = sorted({name for name, _ in before.items() ^ after.items()})
    return [{"name": n, "value": after.get(n), "config_operation": SET if n in after else DELETE} for n in changed]


def _announced(tree: ZnodeTree) -> list[str | None]:
    """Whose configs changed, by the notices since the last call."""
    paths = [f"{ConfigChangesZNode.path}/{name}" for name in tree.read(GetChildren(ConfigChangesZNode.path)).children]
    found = [ConfigChangesZNode.decode(tree.read(GetData(path)).data) for path in paths]
    for path in paths:
        tree.write(Delete(path), session=0, now_ms=0)
    return found
