"""What a broker's page says of requests, groups and sessions: each figure is that of what it is named after.

Source: Kafka 3.9 `RequestMetrics`, `KafkaRequestHandlerPool`, `MemoryPool`, `FetchSessionCache`, `GroupMetadata`.
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, Final

import pytest

from broker_sim.groups.values import GroupState
from broker_sim.metrics.families import FETCH_SESSIONS, GROUPS, HANDLERS, PURGATORY, REQUESTS, SOCKETS
from broker_sim.metrics.of_server import families
from broker_sim.request_meters import RequestMeters, Service, Timed
from controller.wire.protocol import ApiKey, Request
from controller.wire.times import Times

#: Kafka's `Long.MAX_VALUE`: what is left where there is no limit.
NO_LIMIT: Final = 2**63 - 1


class Sessions:
    """Of fetches."""

    partitions, evictions = 31, 32

    def __len__(self) -> int:
        return 30


def page(*, groups: Any = (), uptime_s: float = 1.0, meters: Any = None, **memory: int) -> dict[Any, float]:
    """(name, label values) -> the figure."""
    waiting = SimpleNamespace(waiting_fetch=21, waiting_produce=22)
    context: Any = SimpleNamespace(
        replicas=SimpleNamespace(table=SimpleNamespace(meters=waiting)),
        sessions=Sessions(),
        groups=SimpleNamespace(registry=SimpleNamespace(entries=lambda: groups)),
    )
    limits = SimpleNamespace(**{"limit": -1, "used": 0, **memory})
    server: Any = SimpleNamespace(meters=meters or RequestMeters(), memory=limits)
    zk: Any = SimpleNamespace(latency_ms=Times(), connections=41, is_connected=True, expirations=42)
    found = families(context, server, zk, uptime_s=uptime_s)
    return {(s.name, *s.labels.values()): s.value for family in found for s in family.samples}


@pytest.mark.parametrize(
    ("limit", "used", "shown"), [(-1, 7, (NO_LIMIT, 0)), (100, 7, (93, 7)), (100, 130, (-30, 130)), (0, 0, (0, 0))]
)
def test_memory_of_requests_is_shown_where_it_has_a_limit(limit: int, used: int, shown: tuple[int, int]) -> None:
    found = page(limit=limit, used=used)
    assert (found[f"{SOCKETS}_memorypoolavailable",], found[f"{SOCKETS}_memorypoolused",]) == shown


@pytest.mark.parametrize(
    ("work_s", "uptime_s", "idle"), [(0, 10, 1.0), (4, 10, 0.6), (10, 10, 0.0), (20, 10, 0.0), (0, 0, 1.0), (1, 0, 1.0)]
)
def test_handlers_are_idle_for_the_rest_of_the_time(work_s: float, uptime_s: float, idle: float) -> None:
    meters = RequestMeters()
    meters.local_s = work_s
    found = page(meters=meters, uptime_s=uptime_s)
    assert found[f"{HANDLERS}_requesthandleravgidle_percent",] == pytest.approx(idle)


def test_what_waits_and_what_is_kept() -> None:
    found = page()
    for meter in ("numdelayedoperations", "purgatorysize"):
        assert (found[f"{PURGATORY}_{meter}", "Fetch"], found[f"{PURGATORY}_{meter}", "Produce"]) == (21, 22)
    sessions = ("numincrementalfetchsessions", "numincrementalfetchpartitionscached")
    assert [found[f"{FETCH_SESSIONS}_{name}",] for name in sessions] == [30, 31]
    assert found[f"{FETCH_SESSIONS}_incrementalfetchsessionevictions_total",] == 32


def test_groups_are_counted_by_their_state() -> None:
    many = {state: number for number, state in enumerate(GroupState, 1)}
    entries = [
        SimpleNamespace(group=SimpleNamespace(state=state), offsets=range(number))
        for state, number in many.items()
        for _ in range(number)
    ]
    found = page(groups=entries)
    assert found[f"{GROUPS}_numgroups",] == len(entries)
    assert found[f"{GROUPS}_numoffsets",] == sum(number * number for number in many.values())
    for state, number in many.items():
        assert found[f"{GROUPS}_numgroups{state.value.lower()}",] == number


def request(api: ApiKey, version: int, **body: int) -> Request:
    return Request(api, version, 0, None, SimpleNamespace(**body))


def test_requests_are_counted_by_who_asks_what_and_their_time_goes_to_its_stages() -> None:
    """A fetch is one of all, and one of clients or of followers; 0 is a broker, too."""
    meters = RequestMeters()
    asked = [
        request(ApiKey.FETCH, 11, replica_id=-1),
        request(ApiKey.FETCH, 11, replica_id=0),
        request(ApiKey.FETCH, 4, replica_id=5),
        request(ApiKey.METADATA, 9),
        None,
    ]
    for each in asked:
        errors = [0, 3, 3, 29999]
        service = Service(1.0, 50, taken_s=1.25, local_s=0.5, answered_s=2.75, request=each, errors=errors)
        meters.add(service, 3.0)
    assert meters.local_s == 4 * 0.5, "what was no request counts for nothing"
    found = page(meters=meters)
    counted = {key[1:]: value for key, value in found.items() if key[0] == f"{REQUESTS}_requests_total"}
    assert counted == {
        ("Fetch", "11"): 2,
        ("Fetch", "4"): 1,
        ("FetchConsumer", "11"): 1,
        ("FetchFollower", "11"): 1,
        ("FetchFollower", "4"): 1,
        ("Metadata", "9"): 1,
    }
    refused = {key[1:]: value for key, value in found.items() if key[0] == f"{REQUESTS}_errors_total"}
    errors_of = {"NONE": 1, "UNKNOWN_TOPIC_OR_PARTITION": 2, "29999": 1}
    assert refused == {
        (name, error): number * times
        for name, times in (("Fetch", 3), ("Metadata", 1))
        for error, number in errors_of.items()
    }
    stages = {
        "requestqueuetimems": 250,
        "localtimems": 500,
        "remotetimems": 1000,
        "responsesendtimems": 250,
        "totaltimems": 2000,
        "requestbytes": 50,
        "responsequeuetimems": 0,
        "throttletimems": 0,
    }
    for name, of_each in stages.items():
        for kind, number in (("Fetch", 3), ("FetchConsumer", 1), ("FetchFollower", 2), ("Metadata", 1)):
            assert found[f"{REQUESTS}_{name}_count", kind] == number, name
            assert found[f"{REQUESTS}_{name}_sum", kind] == pytest.approx(of_each * number), name
            assert found[f"{REQUESTS}_{name}", kind, "0.50"] == pytest.approx(of_each), name


def test_a_handler_that_was_not_seen_to_wait_waited_for_nothing() -> None:
    """Its own clock may have gone a little further than that of its request."""
    meters = RequestMeters()
    meters.add(Service(1.0, 1, taken_s=1.0, local_s=0.5, answered_s=1.25, request=request(ApiKey.METADATA, 9)), 2.0)
    assert meters.times["Metadata"].remote.total == 0


@pytest.mark.parametrize("end", [None, ValueError, asyncio.CancelledError])
def test_a_handler_works_while_it_does_not_wait(end: type[BaseException] | None) -> None:
    """Also when it fails, and when what it waits for is cancelled."""
    now_s = 0.0

    def pass_s(seconds: float) -> None:
        nonlocal now_s
        now_s += seconds

    async def handle(answer: asyncio.Future[str]) -> str:
        pass_s(1)
        await asyncio.sleep(0)
        pass_s(2)
        try:
            return await answer
        finally:
            pass_s(4)

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        answer = loop.create_future()

        def others() -> None:
            pass_s(100)
            if end is asyncio.CancelledError:
                task.cancel()
            elif end is not None:
                answer.set_exception(end())
            else:
                answer.set_result("done")

        pass_s(50)
        handling = Timed(handle(answer), lambda: now_s)

        async def serve() -> str:
            return await handling

        task = asyncio.ensure_future(serve())
        for _ in range(3):
            await asyncio.sleep(0)
        others()
        found = (await asyncio.gather(task, return_exceptions=True))[0]
        assert found == "done" if end is None else isinstance(found, end)
        assert handling.local_s == 1 + 2 + 4

    asyncio.run(scenario())
