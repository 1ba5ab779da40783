"""Who has a fetch session and who must do without: places, idle times and epochs, against a plain model of them."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

from broker_sim.replicas.fetch_session import FetchContext, FetchSessionCache
from broker_sim.replicas.types import FetchPartition, FetchResult
from controller.wire.errors import ErrorCode
from controller.wire.types import TopicPartition

TP = TopicPartition("t", 0)
SLOTS, IDLE_MS = 3, 1_000
NONE = ErrorCode.NONE


@dataclass
class Asker:
    """One who fetches, and the session it believes that it has."""

    is_follower: bool
    session_id: int = 0
    epoch: int = 0


class Model:
    """The askers that hold a place, the one whose last request is oldest first, each with the time of that."""

    def __init__(self) -> None:
        self.places: dict[int, int] = {}

    def may_enter(self, asker: int, askers: list[Asker], now_ms: int) -> bool:
        if len(self.places) < SLOTS:
            return True
        for other, used_ms in self.places.items():
            if now_ms - used_ms > IDLE_MS or (askers[asker].is_follower and not askers[other].is_follower):
                del self.places[other]
                return True
        return False

    def use(self, asker: int, now_ms: int) -> None:
        self.places.pop(asker, None)
        self.places[asker] = now_ms


KINDS = ["open", "next", "next", "next", "close", "repeat"]


@pytest.mark.parametrize("seed", range(10))
def test_a_place_goes_to_who_uses_it_and_a_clients_to_a_follower(seed: int) -> None:
    """One of the five askers is a follower. A session that lost its place is unknown, and an old epoch is refused."""
    sessions, model, now_ms = FetchSessionCache(random.Random(1), slots=SLOTS, eviction_ms=IDLE_MS), Model(), 0
    askers = [Asker(number == 0) for number in range(5)]

    def ask(asker: Asker, session_id: int, epoch: int) -> FetchContext:
        return sessions.open(
            session_id=session_id, session_epoch=epoch, partitions={TP: FetchPartition(fetch_offset=0, max_bytes=1)},
            forgotten=(), is_from_follower=asker.is_follower, now_ms=now_ms,
        )  # fmt: skip

    chance = random.Random(seed)
    for _ in range(200):
        step, number = chance.choice(KINDS), chance.randrange(5)
        now_ms += chance.randrange(400)
        asker = askers[number]
        if step == "open":
            model.places.pop(number, None)
            answer = ask(asker, asker.session_id, 0).answer({TP: FetchResult()})
            asker.session_id, asker.epoch = answer.session_id, 0
            assert (answer.error, answer.session_id != 0) == (NONE, model.may_enter(number, askers, now_ms))
            if answer.session_id:
                model.use(number, now_ms)
        elif step == "close":
            model.places.pop(number, None)
            assert ask(asker, asker.session_id, -1).error is NONE
        else:
            epoch = asker.epoch + (step == "next")
            context = ask(asker, asker.session_id, epoch or 1)
            if number not in model.places:
                assert context.error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
            elif step == "repeat" and asker.epoch:
                assert context.error is ErrorCode.INVALID_FETCH_SESSION_EPOCH
            else:
                asker.epoch = epoch or 1
                model.use(number, now_ms)
                assert (context.error, context.answer({TP: FetchResult()}).session_id) == (NONE, asker.session_id)
        assert len(sessions) == sessions.partitions == len(model.places)
