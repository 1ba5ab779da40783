"""What is looked at once, when a world is at rest: logs as a client reads them, commits, deleted groups, traces."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from importlib.util import find_spec
from typing import Final

from controller.sim.cluster import Cluster
from controller.sim.load.consumer import check_committed, fetch_body, find_coordinator
from controller.sim.load.group_probes import check_deleted
from controller.sim.load.ledger import Ledger
from controller.sim.load.links import CallFailed, Links
from controller.sim.oracles.traced import WatchedTrace
from controller.sim.shape import TOPIC
from controller.wire.protocol import ApiKey
from controller.wire.records import iterate

#: Compares what a coordinator says; whether it says anything.
Check = Callable[..., Awaitable[bool]]
Explain = Callable[[Iterable[WatchedTrace]], list[str]]
#: How often a client asks for a coordinator, twice a second, before it gives up.
COORDINATOR_TRIES: Final = 60


async def all_that_is_wrong(
    cluster: Cluster, ledger: Ledger, traces: Sequence[WatchedTrace], partitions: int
) -> list[str]:
    """Everything acknowledged or read is in the main topic, once, in order; commits have not gone back; the traces
    explain what was written. Else, what is not so. What clients find, `ledger` collects, too."""
    links, wrong = Links(cluster, "reader"), _unexplained(traces)
    for partition in range(partitions):
        records, trouble = await _read_all(cluster, links, partition)
        wrong += trouble or ledger.check_log((TOPIC, partition), records)
    wrong += await no_coordinator(cluster)
    wrong += await groups_are_wrong(cluster, ledger, links, partitions)
    return wrong


async def no_coordinator(cluster: Cluster) -> list[str]:
    """A client that knows only a controller gets a coordinator, also where no group was ever asked for: somebody makes
    the topic of the groups. Source: clients.md §7; broker.md §13."""
    for _ in range(COORDINATOR_TRIES):
        answer = await cluster.ask_controller(ApiKey.FIND_COORDINATOR, 2, {"key": "of-the-controller", "key_type": 0})
        if answer.error_code == 0:
            return []
        await cluster.world.sleep(0.5)
    return [f"whoever asks the controller alone gets no coordinator, but error {answer.error_code}"]


async def groups_are_wrong(cluster: Cluster, ledger: Ledger, links: Links, partitions: int) -> list[str]:
    """What each group has committed is asked for, and compared by `ledger`; which of them nobody tells of."""
    asked = [
        (group, partial(check_committed, ledger=ledger, group=group, partitions=partitions))
        for group in sorted({group for group, _ in ledger.committed})
    ]
    asked += [(group, partial(check_deleted, ledger=ledger, group=group)) for group in ledger.deleted_groups]
    return [wrong for group, check in asked for wrong in await _cannot_be_asked(cluster, links, group, check)]


async def _cannot_be_asked(cluster: Cluster, links: Links, group: str, check: Check) -> list[str]:
    """At rest each group has a coordinator, which soon says what is committed: else nothing of it is compared."""
    for _ in range(COORDINATOR_TRIES):
        coordinator = await find_coordinator(links, group)
        if coordinator is not None and await check(links, coordinator=coordinator):
            return []
        await cluster.world.sleep(0.5)
    return [f"no coordinator says what group {group} has committed"]


def import_what_explains_traces() -> Explain | None:
    """What names all that the rules of the replay do not explain. They need the extra `rehearse`: without it, None."""
    if find_spec("pyarrow") is None or find_spec("numpy") is None:
        return None
    from controller.sim.oracles.replayed_rules import unexplained

    return unexplained


def _unexplained(traces: Sequence[WatchedTrace]) -> list[str]:
    explain = import_what_explains_traces()
    return explain(traces) if explain is not None else []


async def _read_all(cluster: Cluster, links: Links, partition: int) -> tuple[list[tuple[int, bytes]], list[str]]:
    """(offset, value) of each record of the main topic's partition; or why it cannot be read."""
    found: list[tuple[int, bytes]] = []
    state = cluster.state(TOPIC, partition)
    while True:
        offset = found[-1][0] + 1 if found else 0
        try:
            answer = await links.call(state["leader"], ApiKey.FETCH, 11, fetch_body(TOPIC, partition, offset))
        except CallFailed as error:
            return found, [f"{TOPIC}-{partition} cannot be read: {error}"]
        row = answer.responses[0].partitions[0]
        if row.error_code != 0:
            return found, [f"{TOPIC}-{partition} offset {offset}: error {row.error_code}"]
        new = [(r.offset, r.value or b"") for r in iterate(bytes(row.records or b"")) if r.offset >= offset]
        if not new:
            return found, []
        found += new
