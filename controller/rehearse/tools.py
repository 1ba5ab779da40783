"""What an operator's tools do to a cluster of a rehearsal: requests to the controller, and dynamic configs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from controller.rehearse.stage import CONTROLLER_PORT, Stage
from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey, ProtocolError
from controller.wire.zk_operations import Create, SetData, ZkCode
from controller.wire.znodes import ConfigChangesZNode, ConfigEntityZNode
from controller.world.client import BrokerConnection

#: What a tool waits for a connection and for an answer, seconds.
CONNECT_S, ANSWER_S = 30.0, 120.0


class Tools:
    """One machine that an operator sits at, with its own ZooKeeper session."""

    def __init__(self, stage: Stage) -> None:
        self._stage, self._machine = stage, stage.world.machine("operator")
        self._session: Any = None

    async def ask_controller(self, api_key: ApiKey, version: int, body: Mapping[str, Any]) -> Any:
        """Asks whoever is the controller, again until one answers that holds the office; as a client does."""
        while True:
            number = self._stage.active_controller()
            if number is not None:
                try:
                    answer = await self._call(f"controller-{number}", api_key, version, body)
                    if answer.error_code != ErrorCode.NOT_CONTROLLER:  # no more, or not yet
                        return answer
                except (OSError, ProtocolError, TimeoutError):
                    pass
            await asyncio.sleep(1)

    async def _call(self, host: str, api_key: ApiKey, version: int, body: Mapping[str, Any]) -> Any:
        network = self._machine.network
        connection = await BrokerConnection.open(
            network, host, CONTROLLER_PORT, client_id="rehearse", timeout_s=CONNECT_S
        )
        try:
            return await connection.call(api_key, version, body, timeout_s=ANSWER_S)
        finally:
            connection.close()

    async def configure(self, entities: Mapping[str, Mapping[str, str | None]]) -> None:
        """Sets (None: removes) dynamic configs, by `topics/t` or `brokers/1`; then announces all of them together."""
        if self._session is None:
            connector = self._machine.connector(session_timeout_ms=60_000)
            self._session = await connector.connect(on_watch=lambda _: None, on_expired=lambda: None)
        znodes = {ConfigEntityZNode.path(path): self._changed(path, changes) for path, changes in entities.items()}
        results = await self._session.perform([SetData(path, data) for path, data in znodes.items()])
        missing = [path for path, result in zip(znodes, results, strict=True) if result.code is ZkCode.NO_NODE]
        await self._session.perform([Create(path, znodes[path]) for path in missing])
        notices = [ConfigChangesZNode.encode(path) for path in entities]
        await self._session.perform([Create(ConfigChangesZNode.sequence_path, data, sequence=True) for data in notices])

    def _changed(self, entity_path: str, changes: Mapping[str, str | None]) -> bytes:
        found = self._stage.world.zookeeper.tree.get(ConfigEntityZNode.path(entity_path))
        configs = dict(ConfigEntityZNode.decode(found.payload)) if found is not None else {}
        configs |= {name: value for name, value in changes.items() if value is not None}
        return ConfigEntityZNode.encode(
            {name: value for name, value in configs.items() if changes.get(name, "") is not None}
        )
