"""What clients were told: each contradiction is seen, and none in a sound history."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from controller.sim.load.ledger import Ledger, Sent

TP = ("t", 0)


def sent(ledger: Ledger, *values: bytes, idempotent: bool = True, partition: tuple[str, int] = TP) -> None:
    for number, value in enumerate(values):
        ledger.sent[value] = Sent("p", partition, number, idempotent)


def acked_then_read_as_another(ledger: Ledger) -> None:
    sent(ledger, b"a", b"b")
    ledger.was_acked(TP, 0, [b"a"], broker=1)
    ledger.was_read(TP, 0, b"b", broker=1)


def read_twice_differently(ledger: Ledger) -> None:
    sent(ledger, b"a", b"b")
    ledger.was_read(TP, 3, b"a", broker=1)
    ledger.was_read(TP, 3, b"b", broker=1)


def read_what_nobody_sent(ledger: Ledger) -> None:
    ledger.was_read(TP, 0, b"a", broker=1)


def read_in_the_wrong_partition(ledger: Ledger) -> None:
    sent(ledger, b"a", partition=("t", 1))
    ledger.was_read(TP, 0, b"a", broker=1)


def a_commit_goes_back(ledger: Ledger) -> None:
    ledger.commit_acked("g", TP, 7)
    ledger.commit_fetched("g", TP, 6, least=7)


def a_commit_that_was_read_stays(ledger: Ledger) -> None:
    ledger.commit_fetched("g", TP, 7, least=-1)
    ledger.commit_fetched("g", TP, 6, least=ledger.committed["g", TP])


def a_commit_goes_back_though_reads_were_lost(ledger: Ledger) -> None:
    ledger.commit_acked("g", TP, 7)
    ledger.reads_are_lost(lambda group: True)
    ledger.commit_fetched("g", TP, 6, least=7)


def a_read_goes_back_though_reads_of_others_were_lost(ledger: Ledger) -> None:
    ledger.commit_fetched("g", TP, 7, least=-1)
    ledger.reads_are_lost(lambda group: group != "g")
    ledger.commit_fetched("g", TP, 6, least=7)


def two_owners(ledger: Ledger) -> None:
    ledger.claimed("g", 3, {0, 1}, "one")
    ledger.claimed("g", 3, {1}, "other")


def two_owners_though_another_group_was_deleted(ledger: Ledger) -> None:
    ledger.claimed("g", 3, {1}, "one")
    ledger.group_deleted("h")
    ledger.claimed("g", 3, {1}, "other")


def two_owners_though_reads_of_others_were_lost(ledger: Ledger) -> None:
    ledger.claimed("g", 3, {1}, "one")
    ledger.reads_are_lost(lambda group: group != "g")
    ledger.claimed("g", 3, {1}, "other")


def sound(ledger: Ledger) -> None:
    sent(ledger, b"a", b"b")
    ledger.was_acked(TP, 0, [b"a", b"b"], broker=1)
    ledger.was_read(TP, 0, b"a", broker=1)
    ledger.was_read(TP, 1, b"b", broker=1)
    ledger.commit_acked("g", TP, 2)
    ledger.commit_fetched("g", TP, 2, least=2)
    ledger.claimed("g", 3, {0}, "one")
    ledger.claimed("g", 4, {0}, "other")
    ledger.claimed("g", 4, {0}, "other")
    ledger.group_deleted("g")
    ledger.claimed("g", 4, {0}, "one")
    ledger.commit_fetched("g", TP, 4, least=2)
    ledger.reads_are_lost(lambda group: group == "g")
    ledger.claimed("g", 4, {0}, "other")
    ledger.commit_fetched("g", TP, 2, least=4)


CASES: list[tuple[Callable[[Ledger], None], str]] = [
    (acked_then_read_as_another, "offset 0 was b'a', then b'b' was read there"),
    (read_twice_differently, "offset 3 was b'a', then b'b' was read there"),
    (read_what_nobody_sent, "which nobody sent there"),
    (read_in_the_wrong_partition, "which nobody sent there"),
    (a_commit_goes_back, "is committed at 6, 7 was acknowledged"),
    (a_commit_that_was_read_stays, "is committed at 6, 7 was acknowledged"),
    (a_commit_goes_back_though_reads_were_lost, "is committed at 6, 7 was acknowledged"),
    (a_read_goes_back_though_reads_of_others_were_lost, "is committed at 6, 7 was acknowledged"),
    (two_owners, "one and other own 1 in generation 3"),
    (two_owners_though_another_group_was_deleted, "one and other own 1 in generation 3"),
    (two_owners_though_reads_of_others_were_lost, "one and other own 1 in generation 3"),
    (sound, ""),
]


@pytest.mark.parametrize(("history", "complaint"), CASES, ids=[case[0].__name__ for case in CASES])
def test_what_contradicts_is_seen(history: Callable[[Ledger], None], complaint: str) -> None:
    ledger = Ledger()
    history(ledger)
    assert [complaint in line for line in ledger.broken] == ([True] if complaint else [])


def test_an_unclean_election_ends_the_promise() -> None:
    ledger = Ledger(unclean={TP})
    acked_then_read_as_another(ledger)
    a_commit_goes_back(ledger)
    assert not ledger.broken
    assert not ledger.check_log(TP, [])


def test_after_an_unclean_election_another_promise_begins() -> None:
    """With what those tell who lead in its epoch, or later: here broker 2."""
    ledger = Ledger(unclean={TP}, leads_anew=lambda partition, broker: (partition, broker) == (TP, 2))
    sent(ledger, b"a", b"b", b"c", b"d")
    ledger.was_acked(TP, 0, [b"a"], broker=1)
    ledger.was_read(TP, 0, b"b", broker=1)
    ledger.was_acked(TP, 0, [b"c"], broker=2)
    assert ledger.broken == []
    assert "offset 0 was b'c', now b'd'" in ledger.check_log(TP, [(0, b"d")])[0]
    ledger.was_read(TP, 0, b"d", broker=2)
    assert "offset 0 was b'c', then b'd' was read there" in ledger.broken[0]
    assert ledger.check_log(TP, [(0, b"c"), (1, b"a"), (2, b"a")]) == [], "it may have been sent again"
    ledger.begins_again(TP)
    ledger.was_read(TP, 0, b"d", broker=2)
    assert len(ledger.broken) == 1, "it ends with each"
    ledger.lost.add(TP)
    ledger.was_read(TP, 0, b"a", broker=2)
    assert len(ledger.broken) == 1 and ledger.check_log(TP, []) == []


def test_groups_whose_log_was_lost_promise_nothing() -> None:
    ledger = Ledger(unclean={("__consumer_offsets", 1)})
    a_commit_goes_back(ledger)
    two_owners(ledger)
    assert not ledger.broken


#: what -> when the last commit was sent by nobody's member (None: a member), what is found, whether that is wrong
KEPT: list[tuple[str, float | None, int, bool]] = [
    ("older than it is kept, it may be forgotten", 39.0, -1, False),
    ("as old as it is kept, it may be forgotten", 40.0, -1, False),
    ("younger, it is kept", 40.1, -1, True),
    ("nobody forgets a part of it", 39.0, 6, True),
    ("what a member has committed is kept", None, -1, True),
]


@pytest.mark.parametrize(("_", "sent_s", "found", "is_wrong"), KEPT, ids=[row[0] for row in KEPT])
def test_offsets_are_kept_for_their_time(_: str, sent_s: float | None, found: int, is_wrong: bool) -> None:
    ledger = Ledger()
    ledger.commit_acked("g", TP, 7, sent_alone_s=sent_s)
    ledger.commit_fetched("g", TP, found, least=7, forgotten_before_s=40.0)
    assert bool(ledger.broken) is is_wrong


def test_a_later_commit_is_kept_anew() -> None:
    """Also one of the same offset."""
    ledger = Ledger()
    for sent_s in (39.0, 41.0):
        ledger.commit_acked("g", TP, 7, sent_alone_s=sent_s)
    ledger.commit_fetched("g", TP, -1, least=7, forgotten_before_s=40.0)
    assert ledger.broken


#: what -> the whole log, the complaint
LOGS: list[tuple[str, list[tuple[int, bytes]], str]] = [
    ("sound", [(0, b"a"), (1, b"b"), (2, b"c")], ""),
    ("a record that is gone", [(0, b"a"), (2, b"c")], "offset 1 was b'b', now None"),
    ("a record at another offset", [(0, b"b"), (1, b"a"), (2, b"c")], "offset 0 was b'a', now b'b'"),
    ("a record twice", [(0, b"a"), (1, b"b"), (2, b"c"), (3, b"b")], "a second time, or too late"),
    ("a record of nobody", [(0, b"a"), (1, b"b"), (2, b"c"), (3, b"x")], "which nobody sent"),
    ("a gap", [(0, b"a"), (1, b"b"), (2, b"c"), (4, b"d")], "gaps"),
]


@pytest.mark.parametrize(("_", "log", "complaint"), LOGS, ids=[row[0] for row in LOGS])
def test_a_whole_log(_: str, log: list[tuple[int, bytes]], complaint: str) -> None:
    ledger = Ledger()
    sent(ledger, b"a", b"b", b"c", b"d")
    ledger.was_acked(TP, 0, [b"a", b"b"], broker=1)
    wrong = ledger.check_log(TP, log)
    assert any(complaint in line for line in wrong) if complaint else not wrong, wrong


def test_without_idempotence_doubles_are_no_fault() -> None:
    ledger = Ledger()
    sent(ledger, b"a", b"b", idempotent=False)
    ledger.was_acked(TP, 1, [b"a"], broker=1)
    assert not ledger.check_log(TP, [(0, b"a"), (1, b"a"), (2, b"b")])
