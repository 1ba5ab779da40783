"""Real sockets on the loopback interface: order, ends, resets, and peers that are too slow."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import os
import resource
import socket
import struct
import warnings
from collections.abc import Iterator

import pytest

from controller.world.ports import Connection
from controller.world.real import net
from controller.world.real.net import TcpNetwork
from controller.world.real.ports import free_ports
from tests.forked import forked_off

LIMIT_S = 20


async def pair() -> tuple[Connection, Connection]:
    """A client's and a server's end of one connection, on a listener that is closed again."""
    accepted: asyncio.Future[Connection] = asyncio.get_running_loop().create_future()

    async def serve(connection: Connection) -> None:
        accepted.set_result(connection)
        await asyncio.Event().wait()

    network = TcpNetwork()
    listener = await network.listen("127.0.0.1", 0, serve)
    near = await network.connect(*listener.address)
    far = await accepted
    await listener.close()
    with pytest.raises(OSError):
        await network.connect(*listener.address)
    return near, far


async def read_all(connection: Connection) -> bytes:
    found = b""
    while chunk := await connection.recv():
        found += chunk
    return found


def run(scenario: object) -> None:
    async def limited() -> None:
        async with asyncio.timeout(LIMIT_S):
            await scenario()  # type: ignore[operator]

    asyncio.run(limited())


def test_bytes_arrive_in_order_and_then_the_end() -> None:
    async def scenario() -> None:
        near, far = await pair()
        for number in range(1000):
            near.send(b"%d," % number)
        near.close()
        near.close()
        near.send(b"late")
        assert await read_all(far) == b"".join(b"%d," % number for number in range(1000))
        assert await far.recv() == b""
        assert await near.recv() == b""
        with pytest.raises(ConnectionError):
            await near.drain()

    run(scenario)


def test_a_connection_names_its_peer_and_does_not_wait_to_send() -> None:
    async def scenario() -> None:
        near, far = await pair()
        assert near.peer.startswith("127.0.0.1:") and far.peer.startswith("127.0.0.1:")
        assert isinstance(near, net.TcpConnection) and near.transport is not None
        raw = near.transport.get_extra_info("socket")
        assert raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        near.close()
        far.close()

    run(scenario)


def test_a_reset_is_an_error_for_who_reads_and_who_writes() -> None:
    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            near = await TcpNetwork().connect(*listening.getsockname())
            raw, _ = listening.accept()
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        raw.close()
        with pytest.raises(ConnectionError):
            await near.recv()
        with pytest.raises(ConnectionError):
            await near.drain()
        near.close()

    run(scenario)


async def fill(near: Connection) -> int:
    """Sends until the peer, which does not read, takes no more; returns how much."""
    total, chunk = 0, bytes(256 * 1024)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.3):
            while True:
                near.send(chunk)
                total += len(chunk)
                await near.drain()
    return total


def test_a_reader_that_is_slow_stops_the_sender_and_memory_stays_bounded() -> None:
    """Each time, and no sender waits for one that has gone."""

    async def scenario() -> None:
        near, far = await pair()
        assert isinstance(far, net.TcpConnection)
        for _ in range(2):
            total = await fill(near)
            assert far.received_bytes <= net.READ_AHEAD_BYTES + 256 * 1024
            draining = asyncio.ensure_future(near.drain())
            received = 0
            while received < total:
                received += len(await far.recv())
            await draining
        await fill(near)
        draining = asyncio.ensure_future(near.drain())
        await asyncio.sleep(0)
        assert not draining.done() and far.transport is not None
        far.transport.abort()
        with pytest.raises(ConnectionError):
            await asyncio.wait_for(draining, 10)
        near.close()
        far.close()

    run(scenario)


def test_closing_does_not_wait_for_ever_for_a_peer_that_does_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(net, "CLOSE_LINGER_S", 0.1)

    async def scenario() -> None:
        near, far = await pair()
        assert isinstance(near, net.TcpConnection)
        lost, inform = asyncio.Event(), near.connection_lost
        monkeypatch.setattr(near, "connection_lost", lambda error: (inform(error), lost.set()))
        near.send(bytes(64 << 20))
        near.close()
        await lost.wait()
        far.close()

    run(scenario)


def test_a_server_may_end_a_connection_by_returning() -> None:
    async def scenario() -> None:
        async def serve(connection: Connection) -> None:
            connection.send((await connection.recv()).upper())

        network = TcpNetwork()
        listener = await network.listen("localhost", 0, serve)
        near = await network.connect(*listener.address)
        near.send(b"hello")
        assert await read_all(near) == b"HELLO"
        near.close()
        await listener.close()

    run(scenario)


def test_an_address_in_use_is_an_error_and_a_freed_one_can_be_taken_at_once() -> None:
    async def scenario() -> None:
        async def serve(connection: Connection) -> None:
            await connection.recv()

        network = TcpNetwork()
        listener = await network.listen("127.0.0.1", 0, serve)
        with pytest.raises(OSError):
            await network.listen(*listener.address, serve)
        near = await network.connect(*listener.address)
        await listener.close()
        again = await network.listen(*listener.address, serve)
        await again.close()
        near.close()

    run(scenario)


@pytest.mark.parametrize(
    ("host", "port"),
    [("127.0.0.1", 70_000), ("localhost", 70_000), ("localhost", -1), ("x..y", 9092), ("a" * 64, 9092), ("a\0", 9092)],
)
def test_an_address_that_cannot_be_is_one_that_cannot_be_reached(host: str, port: int) -> None:
    """Whatever a broker registered: of another error, who connects knows nothing."""

    async def scenario() -> None:
        with pytest.raises(OSError, match="is no address"):
            await TcpNetwork().connect(host, port)

    run(scenario)


@pytest.mark.parametrize("turns", range(5))
def test_a_connection_that_is_accepted_while_the_listener_closes_is_served_or_refused(turns: int) -> None:
    """asyncio loses the socket of one that was accepted and not begun; whoever runs tests sees a ResourceWarning."""

    async def main() -> None:
        served = 0

        async def serve(connection: Connection) -> None:
            nonlocal served
            served += 1

        listener = await TcpNetwork().listen("127.0.0.1", 0, serve)
        clients = [socket.create_connection(listener.address) for _ in range(5)]
        for _ in range(turns):
            await asyncio.sleep(0)
        await listener.close()
        await asyncio.sleep(0.01)
        for client in clients:
            client.close()
        await asyncio.sleep(0.01)
        assert served in (0, 5)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        asyncio.run(main())
        gc.collect()
    assert [str(w.message) for w in caught if issubclass(w.category, ResourceWarning)] == []


@pytest.mark.parametrize("turns", range(7))
def test_who_is_cancelled_while_it_begins_to_listen_has_bound_nothing(turns: int) -> None:
    """A broker that is killed while it starts: the next one with its port must be able to bind it."""

    async def scenario() -> None:
        (port,) = free_ports(1)

        async def serve(connection: Connection) -> None:
            raise AssertionError("nobody is served")

        listening = asyncio.ensure_future(TcpNetwork().listen("127.0.0.1", port, serve))
        for _ in range(turns):
            await asyncio.sleep(0)
        listening.cancel()
        (outcome,) = await asyncio.gather(listening, return_exceptions=True)
        if isinstance(outcome, asyncio.CancelledError):
            with pytest.raises(ConnectionRefusedError):
                await TcpNetwork().connect("127.0.0.1", port)
            outcome = await TcpNetwork().listen("127.0.0.1", port, serve)
        assert not isinstance(outcome, BaseException)
        await outcome.close()

    run(scenario)


@pytest.mark.parametrize("how", ["close", "abort"])
def test_a_process_that_was_forked_meanwhile_keeps_no_peer_and_no_port(how: str) -> None:
    """Whoever tests a service forks it, and kills a broker then: it has to look dead, and its port to be free."""

    async def scenario() -> None:
        served: asyncio.Future[Connection] = asyncio.get_running_loop().create_future()

        async def serve(connection: Connection) -> None:
            served.set_result(connection)
            await asyncio.Event().wait()

        network = TcpNetwork()
        listener = await network.listen("127.0.0.1", 0, serve)
        near = await network.connect(*listener.address)
        far = await served
        assert isinstance(far, net.TcpConnection) and far.transport is not None
        with forked_off():
            far.close() if how == "close" else far.transport.abort()
            assert await read_all(near) == b""
            await listener.close()
            with pytest.raises(ConnectionRefusedError):
                await network.connect(*listener.address)
            await (await network.listen(*listener.address, serve)).close()
        near.close()

    run(scenario)


@contextlib.contextmanager
def files_left(count: int) -> Iterator[list[int]]:
    """This process may open so many more files that are not reserved; closing some of those yielded gives more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = [os.dup(0)]
    limit = taken[0] + 200
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    try:
        while taken[-1] < limit - limit // 8 - count - 1:
            taken.append(os.dup(0))
        yield taken
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for handle in taken:
            os.close(handle)


def test_connections_leave_files_for_logs() -> None:
    """A peer that opens all it can is refused; a file can still be opened, and it connects when there is room again."""

    async def scenario() -> None:
        served: list[str] = []
        reasons: list[BaseException] = []
        accepted = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: reasons.append(context["exception"]))

        async def serve(connection: Connection) -> None:
            served.append(connection.peer)
            accepted.set()
            await asyncio.Event().wait()

        network = TcpNetwork()
        listener = await network.listen("127.0.0.1", 0, serve)
        with files_left(1) as taken:
            peer = socket.create_connection(listener.address)
            peer.setblocking(False)
            with contextlib.suppress(ConnectionResetError):
                assert await loop.sock_recv(peer, 1) == b""
            assert not served and [r.errno for r in reasons if isinstance(r, OSError)] == [errno.EMFILE]
            with pytest.raises(OSError, match=os.strerror(errno.EMFILE)):
                await network.connect(*listener.address)
            os.close(os.dup(0))
            while len(taken) > 1:
                os.close(taken.pop())
            near = await network.connect(*listener.address)
            await accepted.wait()
            assert len(served) == 1
            near.close()
            peer.close()
        await listener.close()

    run(scenario)


@pytest.mark.parametrize(
    ("host", "address"),
    [("localhost", "127.0.0.1"), ("127.0.0.1", "127.0.0.1"), ("::1", "::1"), ("a" * 64, None), ("a\0b", None)],
)
def test_the_address_of_a_name(host: str, address: str | None) -> None:
    """One of IPv4 first, as Java has it; one for which there can be none is an error of the network, and named."""
    if address is None:
        with pytest.raises(OSError, match="has no address") as refused:
            TcpNetwork().address_of(host)
        assert repr(host) in str(refused.value)
    else:
        assert TcpNetwork().address_of(host) == address
