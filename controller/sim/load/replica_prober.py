"""A client that asks brokers what they must refuse or must tell: controllers of the past, and sessions of fetches.

As `prober`, which came first; worlds that have only that one stay what they were.
Source: spec broker.md §5, §8; clients.md §4.1; KIP-227.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from controller.sim.cluster import Cluster
from controller.sim.load.consumer import fetch_body
from controller.sim.load.group_probes import FAR
from controller.sim.load.ledger import Ledger
from controller.sim.load.links import Links
from controller.sim.load.probing import keep_asking
from controller.sim.shape import TOPIC
from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey

PAUSE_S: Final = 0.8


class ReplicaProber:
    """`run` is a program."""

    def __init__(self, cluster: Cluster, ledger: Ledger, links: Links) -> None:
        self._cluster, self._ledger, self._links = cluster, ledger, links
        #: how often each probe was answered
        self.answered: dict[str, int] = {}
        self.is_stopping = False

    async def run(self) -> None:
        """Until `is_stopping`."""
        await keep_asking(self, PROBES, self._links.chance, pause_s=PAUSE_S)

    async def update_from_an_older_controller(self) -> None:
        """An UpdateMetadata of a controller epoch below the highest seen is refused, though it names no partition; and
        one that names none raises what is the highest seen. broker.md §5, §8."""
        found = [
            (number, broker) for number, broker in sorted(self._cluster.brokers.items()) if broker._context is not None
        ]
        if not found:
            return
        number, broker = self._links.chance.choice(found)
        epoch = broker.context.controller_epoch - 1
        body = {
            "controller_id": 1001,
            "controller_epoch": epoch,
            "broker_epoch": -1,
            "topic_states": [],
            "live_brokers": [],
        }
        answer = await self._links.call(number, ApiKey.UPDATE_METADATA, 6, body)
        if answer.error_code != ErrorCode.STALE_CONTROLLER_EPOCH:
            self._ledger.broken.append(
                f"a wrong answer to an UpdateMetadata of controller epoch {epoch}, broker {number} knows {epoch + 1}: "
                f"{ErrorCode.of(int(answer.error_code)).name}"
            )

    async def recover_within_a_session(self) -> None:
        """After an error a session tells of the partition again, though nothing else has changed. KIP-227."""
        partition = self._links.chance.randrange(self._cluster.shape.partitions if self._cluster.shape else 1)
        leader = self._links.leader(TOPIC, partition)
        if leader is None:
            return
        self._links.forget_leader(TOPIC, partition)
        made = await self._fetch(leader, partition, offset=0, session=(0, 0))
        if made.error_code != 0 or made.session_id == 0 or made.responses[0].partitions[0].error_code != 0:
            return
        session = made.session_id
        wrong = await self._fetch(leader, partition, offset=FAR, session=(session, 1))
        end = int(made.responses[0].partitions[0].high_watermark)
        right = await self._fetch(leader, partition, offset=end, session=(session, 2))
        await self._fetch(leader, partition, offset=0, session=(session, -1))
        if wrong.error_code != 0 or right.error_code != 0 or not wrong.responses:
            return
        code = ErrorCode.of(int(wrong.responses[0].partitions[0].error_code))
        if code is ErrorCode.OFFSET_OUT_OF_RANGE and not right.responses:
            self._ledger.broken.append(
                f"broker {leader} told a session that {TOPIC}-{partition} has {code.name}, not that it recovered"
            )

    async def _fetch(self, broker: int, partition: int, *, offset: int, session: tuple[int, int]) -> Any:
        body = fetch_body(TOPIC, partition, offset) | {"session_id": session[0], "session_epoch": session[1]}
        return await self._links.call(broker, ApiKey.FETCH, 11, body)


PROBES: Final[tuple[Callable[[ReplicaProber], Awaitable[None]], ...]] = (
    ReplicaProber.update_from_an_older_controller,
    ReplicaProber.recover_within_a_session,
)
