"""Who connects while a server closes: nobody is left on a connection that no one serves, to wait for a timeout."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Callable
from typing import Any

import pytest
import structlog

from broker_sim.faults.board import FaultBoard
from broker_sim.server import SocketServer
from broker_sim.server_limits import ServerLimits
from controller.node.server import Limits, Server
from controller.wire.protocol import ApiKey, encode_request
from controller.wire.types import BrokerId
from controller.world.real.clock import SystemClock
from controller.world.real.net import TcpNetwork

ASK = encode_request(ApiKey.API_VERSIONS, 0, 1, None, {})


def controllers() -> Server:
    return Server(Limits(), structlog.get_logger())


def brokers() -> SocketServer:
    log = structlog.get_logger()
    faults = FaultBoard(BrokerId(1), random.Random(1), clock=SystemClock(), log=log)
    return SocketServer({}, limits=ServerLimits(), faults=faults, log=log)


@pytest.mark.parametrize("make", [controllers, brokers])
@pytest.mark.parametrize("turns", [*range(7), 50])
def test_whoever_gets_in_while_a_server_closes_is_closed(make: Callable[[], Any], turns: int) -> None:
    """In an embedded cluster, the process lives on: a broker that shuts down asked a killed controller for 30 s."""

    async def main() -> None:
        server, loop = make(), asyncio.get_running_loop()
        address = await server.listen(TcpNetwork(), "127.0.0.1", 0, listener="PLAINTEXT")
        clients = [socket.create_connection(address) for _ in range(3)]
        for client in clients:
            client.setblocking(False)
        for client in clients[:2]:  # the third says nothing
            await loop.sock_sendall(client, ASK)
        for _ in range(turns):
            await asyncio.sleep(0)
        await server.close()
        for client in clients:
            with client:
                try:
                    async with asyncio.timeout(5):
                        assert await loop.sock_recv(client, 1) == b""
                except ConnectionError:
                    pass  # of a closed listener
        await asyncio.sleep(0.01)
        assert asyncio.all_tasks() == {asyncio.current_task()}, "who served them has ended as well"

    asyncio.run(main())
