"""Faults in force at brokers on virtual time: windows, what they do to links, disks and requests, what is logged."""

from __future__ import annotations

import asyncio
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
import structlog
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from broker_sim.broker import Broker, StartRefused
from broker_sim.config import BrokerSettings
from broker_sim.faults.board import FaultBoard
from broker_sim.faults.links import FaultyNetwork
from broker_sim.host import BrokerHost
from broker_sim.identity import BrokerIdentity
from controller.rules.configs.listeners import NodeListener
from controller.wire.fault_rows import API_NAMES, parse_row
from controller.wire.protocol import ApiKey
from controller.wire.types import Broker as RegisteredBroker
from controller.wire.types import BrokerId, Endpoint, TopicPartition
from controller.world.simulated.world import World, run_world

SESSION_MS = 6_000


def board_of(world: World, broker_id: int = 1, **keys: Any) -> FaultBoard:
    return FaultBoard(BrokerId(broker_id), random.Random(1), clock=world.clock, log=structlog.get_logger(), **keys)


def row(fault: str, **columns: Any) -> Any:
    return parse_row({"fault": fault, **columns})


def test_a_row_is_in_force_in_its_window_and_says_so() -> None:
    async def scenario(world: World) -> None:
        board, now = board_of(world), world.clock.now_ms()
        pause = row("pause_replication", id="p", from_ms=now + 1000, until_ms=now + 3000)
        always = row("pause_replication", topic="u")
        elsewhere = row("pause_replication", broker=2)
        board.replace([pause, always, elsewhere])
        assert board.rows == (always,)
        await world.sleep(1.01)
        assert set(board.rows) == {pause, always}
        assert board.is_replication_paused(TopicPartition("t", 0))
        await world.sleep(2)
        assert board.rows == (always,)
        assert not board.is_replication_paused(TopicPartition("t", 0))
        board.replace([])

    with capture_logs() as logs:
        run_world(1, scenario)
    told = [(line["event"], line["id"], line.get("acted"), line.get("reason")) for line in logs]
    assert told == [
        ("fault.started", None, None, None),
        ("fault.started", "p", None, None),
        ("fault.acted", "p", None, None),
        ("fault.ended", "p", 1, "time is over"),
        ("fault.ended", None, 0, "cleared"),
    ]


def test_a_window_that_a_late_look_missed_is_made_up_for() -> None:
    async def scenario(world: World) -> list[str]:
        board, now, seen = board_of(world), world.clock.now_ms(), []
        board.subscribe(lambda row: seen.append("start"), lambda row: seen.append("end"))
        board.replace([row("expire_session", from_ms=now + 1000, until_ms=now + 1001)])
        board.close()  # its timer is as late as a busy machine makes it
        await world.sleep(3)
        board.replace([row("expire_session", from_ms=now + 1000, until_ms=now + 1001)])
        assert board.rows == (), "it is over at once"
        board.replace([row("expire_session", from_ms=now + 1000, until_ms=now + 1001)])
        return seen

    assert run_world(1, scenario) == ["start", "end"]


def test_what_acts_all_the_time_is_told_now_and_then_with_how_often() -> None:
    async def scenario(world: World) -> None:
        board = board_of(world)
        board.replace([row("pause_replication")])
        for _ in range(120):
            board.is_replication_paused(TopicPartition("t", 0))
            await world.sleep(0.1)
        board.replace([])

    with capture_logs() as logs:
        run_world(1, scenario)
    times = [line["times"] for line in logs if line["event"] == "fault.acted"]
    assert len(times) == 3
    assert times[0] == 1
    assert logs[-1]["acted"] == 120


HITS = [
    ("always", {}, [1, 1, 1, 1, 1, 1]),
    ("the third", {"nth": 3}, [0, 0, 1, 0, 0, 0]),
    ("every second", {"every": 2}, [0, 1, 0, 1, 0, 1]),
    ("never by chance", {"chance": 0}, [0, 0, 0, 0, 0, 0]),
    ("another client", {"client": "other-*"}, [0, 0, 0, 0, 0, 0]),
    ("this client", {"client": "te*"}, [1, 1, 1, 1, 1, 1]),
    ("another broker", {"sender": 9}, [0, 0, 0, 0, 0, 0]),
]


@pytest.mark.parametrize(("_", "columns", "expected"), HITS, ids=[case[0] for case in HITS])
def test_which_requests_are_struck(_: str, columns: dict[str, Any], expected: list[int]) -> None:
    async def scenario(world: World) -> list[int]:
        board = board_of(world)
        board.replace([row("api", api="Fetch", action="drop", **columns)])
        assert board.strike(ApiKey.PRODUCE, client_id="test") is None
        return [int(board.strike(ApiKey.FETCH, sender=2, client_id="test") is not None) for _ in range(6)]

    assert run_world(1, scenario) == expected


#: api, which of its requests, whether chance lets it act, whose requests
API_ROWS = st.lists(
    st.tuples(
        st.sampled_from(["Fetch", "Fetch", "Fetch", "Produce"]),
        st.sampled_from([{}, {"nth": 1}, {"nth": 2}, {"nth": 4}, {"every": 1}, {"every": 2}, {"every": 3}]),
        st.sampled_from([1, 1, 1, 0]),
        st.sampled_from([{}, {}, {"client": "a*"}, {"sender": 2}]),
    ),
    max_size=5,
)
#: api, client, sender, which of the rows are wanted from then on
REQUESTS = st.lists(
    st.tuples(
        st.sampled_from(["Fetch", "Fetch", "Fetch", "Produce"]),
        st.sampled_from(["a1", "b1"]),
        st.sampled_from([2, 3]),
        st.sets(st.integers(0, 4), min_size=3).map(sorted),
    ),
    max_size=20,
)


@settings(max_examples=80, deadline=None)
@given(API_ROWS, REQUESTS)
def test_each_row_counts_all_requests_that_fit_it_and_the_first_of_those_that_hit_acts(drawn: Any, sent: Any) -> None:
    """Whichever other rows there are: what one of them hits counts for the others, too, from each row's beginning on;
    a row that goes and comes back begins anew."""

    async def scenario(world: World) -> None:
        board, counts = board_of(world), dict[int, int]()
        rows = [
            row("api", id=str(n), api=api, action="drop", chance=chance, **which, **whose)
            for n, (api, which, chance, whose) in enumerate(drawn)
        ]
        for api, client, sender, wanted in sent:
            wanted = [n for n in wanted if n < len(rows)]
            board.replace([rows[n] for n in wanted])
            counts = {n: counts.get(n, 0) for n in (*[n for n in counts if n in wanted], *wanted)}
            hit = None
            for n in counts:
                name, which, chance, whose = drawn[n]
                if name != api or (whose.get("client") and client != "a1") or whose.get("sender", sender) != sender:
                    continue
                counts[n] += 1
                is_due = counts[n] == which.get("nth", counts[n]) and counts[n] % which.get("every", 1) == 0
                if hit is None and chance and is_due:
                    hit = rows[n]
            assert board.strike(API_NAMES[api], sender=sender, client_id=client) is hit

    run_world(1, scenario)


def test_chance_comes_from_the_seed() -> None:
    async def scenario(world: World) -> list[bool]:
        board = board_of(world)
        board.replace([row("api", api="Fetch", action="drop", chance=0.5)])
        return [board.strike(ApiKey.FETCH) is not None for _ in range(50)]

    first = run_world(1, scenario)
    assert first == run_world(1, scenario)
    assert 10 < sum(first) < 40


def test_turns_of_a_slow_disk_wait_for_each_other_and_dirs_do_not() -> None:
    async def scenario(world: World) -> None:
        board = board_of(world)
        board.replace([row("slow_disk", bytes_per_second=1000, delay_ms=100)])
        assert board.disk_wait_s("a", 500) == pytest.approx(0.6)
        assert board.disk_wait_s("a", 500) == pytest.approx(1.2)
        assert board.disk_wait_s("b", 500) == pytest.approx(0.6)
        await world.sleep(10)
        assert board.disk_wait_s("a", 500) == pytest.approx(0.6)
        board.replace([row("slow_disk", bytes_per_second=1000, log_dir="b")])
        assert board.disk_wait_s("a", 500) == 0

    run_world(1, scenario)


# -- links ------------------------------------------------------------------------------------------------------------


async def echo(connection: Any) -> None:
    while data := await connection.recv():
        connection.send(data)
        await connection.drain()


class Pair:
    """Machine one (broker 1) connects to machine two (broker 2), which echoes."""

    def __init__(self, world: World) -> None:
        self.world, self.board = world, board_of(world)
        peer = RegisteredBroker(broker_id=BrokerId(2), endpoints=(Endpoint(host="two", port=1),))
        self.network = FaultyNetwork(
            world.machine("one").network, self.board, lambda host, port: peer if (host, port) == ("two", 1) else None
        )

    async def open(self) -> Any:
        await self.world.machine("two").network.listen("two", 1, echo)
        return await self.network.connect("two", 1)

    async def round_trip_s(self, connection: Any, size: int = 10) -> float:
        before, left = self.world.loop.time(), size
        connection.send(b"x" * size)
        while left:
            left -= len(await connection.recv())
        return self.world.loop.time() - before


def test_a_slow_link_delays_both_directions_and_shares_its_rate() -> None:
    async def scenario(world: World) -> None:
        pair = Pair(world)
        connection = await pair.open()
        healthy = await pair.round_trip_s(connection)
        pair.board.replace([row("slow_link", broker=1, peer=2, delay_ms=500)])
        assert await pair.round_trip_s(connection) == pytest.approx(healthy + 1.0, abs=0.1)
        pair.board.replace([row("slow_link", broker=2, peer=1, bytes_per_second=10_000)])
        assert await pair.round_trip_s(connection, 20_000) == pytest.approx(4.0, abs=0.3)
        pair.board.replace([row("slow_link", broker=1, peer=3, delay_ms=500)])
        assert await pair.round_trip_s(connection) < 0.1

    run_world(1, scenario)


def test_bytes_under_way_stay_in_order_when_the_link_heals() -> None:
    async def scenario(world: World) -> None:
        pair = Pair(world)
        connection = await pair.open()
        pair.board.replace([row("slow_link", delay_ms=300)])
        connection.send(b"1")
        pair.board.replace([])
        connection.send(b"2")
        received = b""
        while len(received) < 2:
            received += await connection.recv()
        assert received == b"12"

    run_world(1, scenario)


def test_a_cut_link_breaks_what_is_open_and_refuses_what_is_new() -> None:
    async def scenario(world: World) -> None:
        pair = Pair(world)
        connection = await pair.open()
        pair.board.replace([row("cut_link", broker=1, peer=2)])
        with pytest.raises(OSError, match=r"cut|closed|reset"):
            if await connection.recv() == b"":
                raise ConnectionResetError("closed")
        with pytest.raises(ConnectionRefusedError, match="the link to two:1 is cut"):
            await pair.network.connect("two", 1)
        pair.board.replace([])
        assert await pair.round_trip_s(await pair.network.connect("two", 1)) < 1

    run_world(1, scenario)


def test_a_link_that_is_cut_while_a_connection_comes_about_leaves_none() -> None:
    async def scenario(world: World) -> None:
        pair = Pair(world)
        await pair.open()
        under_way = asyncio.ensure_future(pair.network.connect("two", 1))
        await asyncio.sleep(0)
        assert not under_way.done()
        pair.board.replace([row("cut_link", broker=1, peer=2)])
        with pytest.raises(ConnectionRefusedError, match="the link to two:1 is cut"):
            await under_way

    run_world(1, scenario)


def test_a_broker_without_network_is_cut_off_from_outside_too() -> None:
    async def scenario(world: World) -> None:
        board = board_of(world)
        network = FaultyNetwork(world.machine("one").network, board, lambda host, port: None)
        await network.listen("one", 1, echo)
        outside = world.machine("two").network
        connection = await outside.connect("one", 1)
        board.replace([row("cut_link", broker=1)])
        connection.send(b"x")
        assert await received(connection) == b""
        assert await received(await outside.connect("one", 1)) == b""
        board.replace([])
        connection = await outside.connect("one", 1)
        connection.send(b"x")
        assert await received(connection) == b"x"

    run_world(1, scenario)


async def received(connection: Any) -> bytes:
    try:
        return bytes(await connection.recv())
    except ConnectionError:
        return b""


# -- the host ---------------------------------------------------------------------------------------------------------


class Hosted:
    """Two brokers of one process; the disks of each are named by its id and one of these ends."""

    def __init__(self, world: World, folder: Path, disks: tuple[str, ...] = ("",), *, retry_ms: int = 10) -> None:
        self.world = world
        machine = world.machine("host")
        identities = [
            BrokerIdentity(
                broker_id=BrokerId(n),
                listeners=(NodeListener(host="host", port=9090 + n),),
                log_dirs=tuple(folder / f"{n}{end}" for end in disks),
                rack="ab"[n - 1],
            )
            for n in (1, 2)
        ]

        def make(identity: BrokerIdentity, board: FaultBoard) -> Broker:
            return Broker(
                identity,
                BrokerSettings(controlled_shutdown_retry_backoff_ms=retry_ms),
                clock=machine.clock,
                network=machine.network,
                zookeeper=machine.connector(session_timeout_ms=SESSION_MS),
                chance=machine.chance,
                log=structlog.get_logger(),
                faults=board,
            )

        self.host = BrokerHost(
            identities,
            make,
            clock=machine.clock,
            chance=machine.chance,
            session_timeout_ms=SESSION_MS,
            log=structlog.get_logger(),
        )

    def registered(self) -> list[str]:
        found = self.world.zookeeper.tree.get("/brokers/ids")
        return sorted(found.children) if found is not None else []

    async def until_registered(self, *ids: str, within_s: float) -> float:
        before = self.world.loop.time()
        await self.world.until(lambda: self.registered() == list(ids), within_s=within_s, what=f"{ids} registered")
        return self.world.loop.time() - before


def hosted(folder: Path, scenario: Any, **keys: Any) -> None:
    async def play(world: World) -> None:
        both = Hosted(world, folder, **keys)
        done = asyncio.Event()

        async def program() -> None:
            await both.host.start()
            try:
                await scenario(both)
            finally:
                await both.host.stop(controlled=False)
                done.set()

        world.machine("host").start(program())
        await world.until(done.is_set, within_s=600, what="the scenario's end")

    run_world(3, play)


def test_a_killed_broker_dies_for_zookeeper_later_and_comes_back_when_the_row_ends(tmp_path: Path) -> None:
    async def scenario(both: Hosted) -> None:
        now, epoch = both.world.clock.now_ms(), both.host.brokers[BrokerId(1)].context.registration.broker_epoch
        both.host.set_faults([row("kill", broker=1, until_ms=now + 20_000)])
        await both.world.sleep(0.5)
        assert list(both.host.brokers) == [2]
        assert both.registered() == ["1", "2"]  # its session lives on, as a killed process's does
        assert await both.until_registered("2", within_s=10) == pytest.approx(SESSION_MS / 1000 - 0.5, abs=0.2)
        took = await both.until_registered("1", "2", within_s=30)
        assert took == pytest.approx(20 - SESSION_MS / 1000, abs=0.5)
        assert both.host.brokers[BrokerId(1)].context.registration.broker_epoch > epoch

    with capture_logs() as logs:
        hosted(tmp_path, scenario)
    events = [line["event"] for line in logs if line["event"].startswith(("fault", "broker.k"))]
    assert events == ["fault.started", "fault.acted", "broker.killed", "fault.ended"]


def test_a_broker_that_is_back_too_early_waits_for_its_old_session(tmp_path: Path) -> None:
    async def scenario(both: Hosted) -> None:
        both.host.set_faults([row("kill", broker=1)])
        await both.world.sleep(0.2)
        both.host.set_faults([])
        await both.world.until(lambda: len(both.host.brokers) == 2, within_s=SESSION_MS / 1000 + 5, what="1 is back")

    hosted(tmp_path, scenario)


def test_a_whole_rack_stops_in_order_and_returns(tmp_path: Path) -> None:
    async def scenario(both: Hosted) -> None:
        both.host.set_faults([row("stop", rack="b")])
        assert await both.until_registered("1", within_s=5) < SESSION_MS / 1000 / 2
        both.host.set_faults([])
        await both.until_registered("1", "2", within_s=5)

    hosted(tmp_path, scenario)


def test_who_has_lost_all_its_dirs_is_gone_as_by_a_kill_and_the_process_ends_when_all_are(tmp_path: Path) -> None:
    async def scenario(both: Hosted) -> None:
        ended = asyncio.ensure_future(both.host.wait_all_halted())
        broken = {n: row("fail_log_dir", broker=n, log_dir=str(tmp_path / str(n))) for n in (1, 2)}
        both.host.set_faults([broken[1]])
        await both.world.sleep(0.5)
        assert list(both.host.brokers) == [2] and both.registered() == ["1", "2"], "its session lives on"
        with pytest.raises(ConnectionRefusedError):
            await both.world.machine("client").network.connect("host", 9091)
        assert await both.until_registered("2", within_s=10) == pytest.approx(SESSION_MS / 1000 - 0.5, abs=0.2)
        tree = both.world.zookeeper.tree
        assert not tree.get("/log_dir_event_notification").children, "nobody is told of the last dir"
        both.host.set_faults([broken[2]])  # the first has a new disk
        await both.world.until(lambda: list(both.host.brokers) == [1], within_s=5, what="1 is back, 2 is gone")
        await both.world.sleep(1)
        assert not ended.done(), "1 serves"
        both.host.set_faults(broken.values())
        await asyncio.wait_for(ended, 1)

    hosted(tmp_path, scenario)


def test_who_has_a_disk_left_goes_on_also_after_it_had_lost_all(tmp_path: Path) -> None:
    async def scenario(both: Hosted) -> None:
        broken = [row("fail_log_dir", broker=1, log_dir=str(tmp_path / f"1-{end}")) for end in "ab"]
        for _ in range(3):  # each life is as the first
            one = both.host.brokers[BrokerId(1)]
            both.host.set_faults(broken[:1])
            await both.world.sleep(SESSION_MS / 1000 + 1)
            assert both.host.brokers.get(BrokerId(1)) is one and both.registered() == ["1", "2"]
            both.host.set_faults(broken)
            await both.until_registered("2", within_s=10)
            assert list(both.host.brokers) == [2]
            both.host.set_faults([])
            await both.world.until(lambda: len(both.host.brokers) == 2, within_s=20, what="1 is back")

    hosted(tmp_path, scenario, disks=("-a", "-b"))


def test_an_expired_session_is_followed_by_a_new_registration_once(tmp_path: Path) -> None:
    async def scenario(both: Hosted) -> None:
        first = both.host.brokers[BrokerId(1)].context.registration
        before = first.broker_epoch
        expire = row("expire_session", broker=1)
        both.host.set_faults([expire])
        await both.world.until(lambda: first.broker_epoch > before, within_s=20, what="registered again")
        again = first.broker_epoch
        both.host.set_faults([expire, row("pause_replication")])
        await both.world.sleep(30)
        assert first.broker_epoch == again

    hosted(tmp_path, scenario)


@pytest.mark.parametrize("kind", ["kill", "stop", "expire_session", "fail_log_dir"])
def test_what_happens_to_a_whole_broker_is_logged_when_it_starts_acts_and_ends(tmp_path: Path, kind: str) -> None:
    columns = {"log_dir": str(tmp_path / "1")} if kind == "fail_log_dir" else {}

    async def scenario(both: Hosted) -> None:
        both.host.set_faults([row(kind, id="f", broker=1, **columns)])
        await both.world.sleep(10)
        both.host.set_faults([])
        await both.world.sleep(10)

    with capture_logs() as logs:
        hosted(tmp_path, scenario)
    told = [(line["event"], line["id"], line["broker_id"]) for line in logs if line["event"].startswith("fault.")]
    assert told == [("fault.started", "f", 1), ("fault.acted", "f", 1), ("fault.ended", "f", 1)]


def test_a_fault_strikes_no_former_life_of_a_broker(tmp_path: Path) -> None:
    async def scenario(both: Hosted) -> None:
        for _ in range(2):
            both.host.set_faults([row("stop", broker=1)])
            await both.until_registered("2", within_s=10)
            both.host.set_faults([])
            await both.until_registered("1", "2", within_s=20)
        both.host.set_faults([row("expire_session", id="f", broker=1)])
        await both.world.sleep(10)
        both.host.set_faults([])

    with capture_logs() as logs:
        hosted(tmp_path, scenario)
    assert [line["acted"] for line in logs if line["event"] == "fault.ended" and line["id"] == "f"] == [1]


def test_a_failed_disk_is_still_failed_at_the_next_start(tmp_path: Path) -> None:
    async def scenario(both: Hosted) -> None:
        broken = row("fail_log_dir", broker=1, log_dir=str(tmp_path / "1"))
        both.host.set_faults([row("stop", broker=1)])
        await both.until_registered("2", within_s=10)
        both.host.set_faults([broken])
        await both.until_registered("1", "2", within_s=20)
        await both.until_registered("2", within_s=20)  # it came up, and could not go on
        both.host.set_faults([broken, row("stop", broker=1)])
        both.host.set_faults([broken])
        await both.world.sleep(20)
        assert both.registered() == ["2"] and list(both.host.brokers) == [2], "no start helps while the disk is broken"
        both.host.set_faults([])
        await both.until_registered("1", "2", within_s=20)
        assert not both.host.brokers[BrokerId(1)].context.replicas.all_log_dirs_failed

    hosted(tmp_path, scenario)


def test_when_one_cannot_start_none_is_left(tmp_path: Path) -> None:
    async def play(world: World) -> None:
        both = Hosted(world, tmp_path)
        (tmp_path / "2").mkdir()
        (tmp_path / "2" / "meta.properties").write_text("version=0\nbroker.id=7\ncluster.id=x\n")

        async def program() -> None:
            with pytest.raises(StartRefused):
                await both.host.start()
            assert (both.registered(), both.host.brokers, both.host.supervisor.running) == ([], {}, [])
            shutil.rmtree(tmp_path / "2")
            await both.host.start()  # nobody has its dirs, its address or its id

        await world.machine("host").start(program())
        assert both.registered() == ["1", "2"]

    run_world(3, play)
