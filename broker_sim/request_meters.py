"""What a broker counts of requests: how many, how large, how long in each stage, with which errors. Pure.

Stages, all in ms: `queue` until a handler takes the request, `local` while the handler works, `remote` while it waits
(for replicas, records, other members, ZooKeeper), `send` until the answer is with the system, `total` is all of it.
Kafka's other stages do not exist here: an answer never queues, and no request is delayed by a quota.
Source: Kafka 3.9 `RequestChannel`, `RequestMetrics`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine, Generator, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey, Request, api_name
from controller.wire.times import Times

T = TypeVar("T")
_ERROR_NAMES: Final = {int(code): code.name for code in ErrorCode}


@dataclass(slots=True)
class Service:
    """One request on its way; times of the event loop, in seconds."""

    arrived_s: float
    size_bytes: int
    taken_s: float = 0.0
    local_s: float = 0.0
    answered_s: float = 0.0
    request: Request | None = None
    errors: Iterable[int] = ()


@dataclass(slots=True)
class StageTimes:
    """Of all requests of one name; `size_bytes` is a histogram, too."""

    queue: Times = field(default_factory=Times)
    local: Times = field(default_factory=Times)
    remote: Times = field(default_factory=Times)
    send: Times = field(default_factory=Times)
    total: Times = field(default_factory=Times)
    size_bytes: Times = field(default_factory=Times)

    def add(self, service: Service, done_s: float) -> None:
        """Notes one that is done."""
        remote_s = service.answered_s - service.taken_s - service.local_s
        self.queue.add((service.taken_s - service.arrived_s) * 1000)
        self.local.add(service.local_s * 1000)
        self.remote.add(remote_s * 1000 if remote_s > 0 else 0.0)
        self.send.add((done_s - service.answered_s) * 1000)
        self.total.add((done_s - service.arrived_s) * 1000)
        self.size_bytes.add(service.size_bytes)


class RequestMeters:
    """Of one broker, by Kafka's names of requests; a Fetch counts as `Fetch` and as one of clients or of followers."""

    def __init__(self) -> None:
        self.times: dict[str, StageTimes] = {}
        self.requests: Counter[tuple[str, int]] = Counter()
        self.errors: Counter[tuple[str, str]] = Counter()
        self.local_s = 0.0

    def add(self, service: Service, done_s: float) -> None:
        """A request was served to its end."""
        request = service.request
        if request is None:
            return
        self.local_s += service.local_s
        for name in _names(request):
            self.requests[name, request.api_version] += 1
            times = self.times.get(name)
            if times is None:
                times = self.times[name] = StageTimes()
            times.add(service, done_s)
        api = api_name(request.api_key)
        for code in service.errors:
            self.errors[api, _ERROR_NAMES.get(code) or str(code)] += 1


def _names(request: Request) -> tuple[str, ...]:
    name = api_name(request.api_key)
    if request.api_key is not ApiKey.FETCH:
        return (name,)
    return name, "FetchFollower" if request.body.replica_id >= 0 else "FetchConsumer"


class Timed(Generic[T]):
    """Awaits a handler and knows how long it worked; the rest of its time it waited."""

    __slots__ = ("_clock_s", "_work", "local_s")

    def __init__(self, work: Coroutine[Any, Any, T], clock_s: Callable[[], float]) -> None:
        self._work, self._clock_s = work, clock_s
        self.local_s = 0.0

    def __await__(self) -> Generator[Any, Any, T]:
        step: Callable[[Any], Any] = self._work.send
        argument: Any = None
        while True:
            started_s = self._clock_s()
            try:
                waits_for = step(argument)
            except StopIteration as end:
                result: T = end.value
                return result
            finally:
                self.local_s += self._clock_s() - started_s
            try:
                argument = yield waits_for
                step = self._work.send
            except BaseException as error:
                step, argument = self._work.throw, error
