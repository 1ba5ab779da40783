"""What the controller and the brokers rely on, held to by the real ZooKeeper and by the one in memory alike."""

from __future__ import annotations

import asyncio

import pytest

from controller.wire.zk_operations import (
    Check,
    Create,
    Delete,
    Exists,
    GetChildren,
    GetData,
    Multi,
    SetData,
    WatchEvent,
    WatchKind,
    ZkCode,
    ZkOp,
    ZkSessionExpired,
)
from controller.world.large_requests import REQUEST_BYTES_MAX
from tests.worlds.zookeepers import Client, Zk

pytestmark = pytest.mark.zk

OK, NO_NODE, EXISTS = ZkCode.OK, ZkCode.NO_NODE, ZkCode.NODE_EXISTS
BAD_VERSION, INCONSISTENT = ZkCode.BAD_VERSION, ZkCode.RUNTIME_INCONSISTENCY


async def codes(client: Client, *ops: ZkOp) -> list[ZkCode]:
    return [result.code for result in await client.session.perform(ops)]


def test_a_znode_keeps_its_payload_and_counts_its_versions(zk: Zk) -> None:
    async def scenario() -> None:
        a = await zk.client()
        created, first, written, second, there = await a.session.perform(
            [Create("/a", b"one"), GetData("/a"), SetData("/a", b"two", 0), GetData("/a"), Exists("/a")]
        )
        assert created.path == "/a"
        assert first.data == b"one" and second.data == b"two"
        assert first.stat and written.stat and second.stat
        assert (first.stat.version, second.stat.version) == (0, 1)
        assert first.stat.czxid == first.stat.mzxid < second.stat.mzxid
        assert written.stat == second.stat == there.stat
        assert second.stat.czxid == first.stat.czxid
        assert second.stat.ephemeral_owner == 0

    zk.run(scenario)


def test_no_payload_and_an_empty_one_are_told_apart(zk: Zk) -> None:
    async def scenario() -> None:
        a = await zk.client()
        found = await a.session.perform(
            [
                *(Create("/null"), Create("/empty", b""), Create("/set", b"x"), SetData("/set", None)),
                *(GetData("/null"), GetData("/empty"), GetData("/set")),
            ]
        )
        assert [result.data for result in found[4:]] == [None, b"", None]

    zk.run(scenario)


REFUSALS: list[tuple[str, ZkOp, ZkCode]] = [
    ("reading what is not there", GetData("/none"), NO_NODE),
    ("looking for what is not there", Exists("/none"), NO_NODE),
    ("listing what is not there", GetChildren("/none"), NO_NODE),
    ("creating what is there", Create("/here"), EXISTS),
    ("creating below nothing", Create("/none/child"), NO_NODE),
    ("creating below an ephemeral znode", Create("/gone/child"), ZkCode.NO_CHILDREN_FOR_EPHEMERALS),
    ("setting what is not there", SetData("/none", b""), NO_NODE),
    ("setting another version", SetData("/here", b"", 7), BAD_VERSION),
    ("deleting what is not there", Delete("/none"), NO_NODE),
    ("deleting another version", Delete("/here", 7), BAD_VERSION),
    ("deleting what has children", Delete("/parent"), ZkCode.NOT_EMPTY),
    ("another version weighs more than children", Delete("/parent", 7), BAD_VERSION),
    ("a path that ends with a slash", Create("/here/"), ZkCode.BAD_ARGUMENTS),
]


@pytest.mark.parametrize(("op", "code"), [row[1:] for row in REFUSALS], ids=[row[0] for row in REFUSALS])
def test_is_refused(zk: Zk, op: ZkOp, code: ZkCode) -> None:
    async def scenario() -> None:
        a = await zk.client()
        await codes(a, Create("/here"), Create("/parent"), Create("/parent/child"), Create("/gone", ephemeral=True))
        assert await codes(a, op) == [code]

    zk.run(scenario)


def test_a_multi_is_all_or_nothing_and_tells_which_operation_failed(zk: Zk) -> None:
    async def scenario() -> None:
        a = await zk.client()
        await codes(a, Create("/a", b"one"), Create("/b"))
        multi = Multi((SetData("/a", b"two", 0), Create("/c"), Check("/b", 3), Delete("/a"), Create("/a")))
        (failed,) = await a.session.perform([multi])
        assert failed.code is BAD_VERSION
        assert [result.code for result in failed.results] == [OK, OK, BAD_VERSION, INCONSISTENT, INCONSISTENT]
        after, missing = await a.session.perform([GetData("/a"), Exists("/c")])
        assert after.data == b"one" and after.stat and after.stat.version == 0
        assert missing.code is NO_NODE

    zk.run(scenario)


def test_in_a_multi_each_operation_sees_those_before_it(zk: Zk) -> None:
    async def scenario() -> None:
        a = await zk.client()
        (done,) = await a.session.perform(
            [Multi((Create("/a"), Create("/a/b", b"1"), SetData("/a/b", b"2", 0), Check("/a/b", 1), Delete("/a/b", 1)))]
        )
        assert done.ok and [result.code for result in done.results] == [OK] * 5
        assert [result.path for result in done.results[:2]] == ["/a", "/a/b"]
        assert done.results[2].stat and done.results[2].stat.version == 1
        assert (await a.session.perform([GetChildren("/a")]))[0].children == ()

    zk.run(scenario)


def test_an_empty_multi_does_nothing(zk: Zk) -> None:
    async def scenario() -> None:
        a = await zk.client()
        (done,) = await a.session.perform([Multi(())])
        assert done.ok and done.results == ()
        assert await a.session.perform([]) == []

    zk.run(scenario)


def test_the_stat_in_a_registration_multi_tells_the_brokers_epoch(zk: Zk) -> None:
    async def scenario() -> None:
        a = await zk.client()
        (done,) = await a.session.perform([Multi((Create("/id", ephemeral=True), SetData("/id", b"{}", 0)))])
        (read,) = await a.session.perform([GetData("/id")])
        assert read.stat and done.results[1].stat == read.stat
        assert read.stat.czxid == read.stat.mzxid > 0
        assert read.stat.ephemeral_owner == a.session.session_id

    zk.run(scenario)


D, C, X = WatchKind.DATA_CHANGED, WatchKind.CREATED, WatchKind.DELETED
LIST = WatchKind.CHILDREN_CHANGED
WATCHES: list[tuple[str, ZkOp, list[ZkOp], list[tuple[WatchKind, str]]]] = [
    ("data by a change", GetData("/a", watch=True), [SetData("/a", b"")], [(D, "/a")]),
    ("data by a deletion", GetData("/a", watch=True), [Delete("/a")], [(X, "/a")]),
    ("data not by a child", GetData("/a", watch=True), [Create("/a/b")], []),
    ("presence by a change", Exists("/a", watch=True), [SetData("/a", b"")], [(D, "/a")]),
    ("absence by a creation", Exists("/new", watch=True), [Create("/new")], [(C, "/new")]),
    ("no watch on data that is not there", GetData("/new", watch=True), [Create("/new")], []),
    ("children by a creation", GetChildren("/a", watch=True), [Create("/a/b")], [(LIST, "/a")]),
    ("children by the parent's deletion", GetChildren("/a", watch=True), [Delete("/a")], [(X, "/a")]),
    ("children not by data", GetChildren("/a", watch=True), [SetData("/a", b"")], []),
    ("only once", GetData("/a", watch=True), [SetData("/a", b""), SetData("/a", b"")], [(D, "/a")]),
    ("by a multi", GetChildren("/", watch=True), [Multi((Create("/m"), Create("/n")))], [(LIST, "/")]),
    ("not by a refused change", GetData("/a", watch=True), [SetData("/a", b"", 9)], []),
    ("not by a failed multi", GetData("/a", watch=True), [Multi((SetData("/a", b""), Check("/a", 9)))], []),
]


@pytest.mark.parametrize(("read", "changes", "fired"), [row[1:] for row in WATCHES], ids=[row[0] for row in WATCHES])
def test_a_watch_fires(zk: Zk, read: ZkOp, changes: list[ZkOp], fired: list[tuple[WatchKind, str]]) -> None:
    async def scenario() -> None:
        a, b = await zk.client(), await zk.client()
        await codes(a, Create("/a"))
        await codes(a, read)
        await codes(b, *changes)
        # One more change, which both must see in order, ends the wait.
        await codes(a, Exists("/end", watch=True))
        await codes(b, Create("/end"))
        end = WatchEvent(C, "/end")
        await a.until(lambda: end in a.events)
        assert a.events == [*(WatchEvent(*event) for event in fired), end]
        assert b.events == []

    zk.run(scenario)


def test_a_deletion_reaches_a_session_once_whatever_it_watched(zk: Zk) -> None:
    async def scenario() -> None:
        a = await zk.client()
        await codes(a, Create("/a"), GetData("/a", True), Exists("/a", True), GetChildren("/a", True))
        await codes(a, GetChildren("/", True), Delete("/a"), Exists("/"))
        assert a.events == [WatchEvent(X, "/a"), WatchEvent(LIST, "/")]

    zk.run(scenario)


def test_a_watch_fires_before_a_reply_shows_the_change(zk: Zk) -> None:
    async def scenario() -> None:
        a, b = await zk.client(), await zk.client()
        await codes(a, Create("/a", b"0"))
        for round_number in range(1, 21):
            await codes(a, GetData("/a", watch=True))
            change = asyncio.ensure_future(codes(b, SetData("/a", b"%d" % round_number)))
            while (await a.session.perform([GetData("/a")]))[0].data != b"%d" % round_number:
                pass
            assert len(a.events) == round_number
            await change

    zk.run(scenario)


def test_ephemeral_znodes_go_with_their_session(zk: Zk) -> None:
    async def scenario() -> None:
        a, b = await zk.client(), await zk.client()
        await codes(a, Create("/a", ephemeral=True), Create("/stays"))
        assert await codes(b, Exists("/a", watch=True)) == [OK]
        await a.session.close()
        await a.session.close()
        await b.until(lambda: bool(b.events))
        assert b.events == [WatchEvent(X, "/a")]
        assert await codes(b, Exists("/a"), Exists("/stays")) == [NO_NODE, OK]
        assert a.expirations == 0
        with pytest.raises(ZkSessionExpired):
            await a.session.perform([Exists("/")])

    zk.run(scenario)


def test_an_expired_session_is_over_for_good(zk: Zk) -> None:
    async def scenario() -> None:
        a, b = await zk.client(), await zk.client()
        await codes(a, Create("/a", ephemeral=True))
        await codes(b, Exists("/a", watch=True))
        await zk.expire(a)
        await a.until(lambda: a.expirations > 0)
        for _ in range(2):
            with pytest.raises(ZkSessionExpired):
                await a.session.perform([Exists("/")])
        await b.until(lambda: bool(b.events))
        assert await codes(b, Exists("/a")) == [NO_NODE]
        await a.session.close()
        assert a.expirations == 1

    zk.run(scenario)


def test_who_waits_for_an_answer_when_the_session_expires_is_told(zk: Zk) -> None:
    async def scenario() -> None:
        a = await zk.client()

        async def work() -> None:
            while True:
                await a.session.perform([Exists("/")] * 10)

        task = asyncio.ensure_future(work())
        await zk.expire(a)
        with pytest.raises(ZkSessionExpired):
            await asyncio.wait_for(task, 20)

    zk.run(scenario)


def test_sequential_children_are_numbered_by_their_parent(zk: Zk) -> None:
    async def scenario() -> None:
        a = await zk.client()
        await codes(a, Create("/p"), Create("/p/other"), Delete("/p/other"))
        made = await a.session.perform([Create("/p/n_", b"", sequence=True), Create("/p/n_", b"", sequence=True)])
        (multi,) = await a.session.perform([Multi((Create("/p/n_", sequence=True), Check("/p", 0)))])
        paths = [result.path for result in (*made, multi.results[0])]
        assert paths == ["/p/n_0000000001", "/p/n_0000000002", "/p/n_0000000003"]

    zk.run(scenario)


def test_operations_of_one_call_and_of_many_are_done_in_order(zk: Zk) -> None:
    async def scenario() -> None:
        a = await zk.client()
        await codes(a, Create("/a", b""))
        calls = [a.session.perform([SetData("/a", b"%d" % n, n), GetData("/a"), GetData("/a")]) for n in range(200)]
        for n, (written, read, again) in enumerate(await asyncio.gather(*calls)):
            assert written.ok and read.data == again.data == b"%d" % n

    zk.run(scenario)


def test_thousands_of_reads_in_one_call(zk: Zk) -> None:
    async def scenario() -> None:
        a = await zk.client()
        made = [Create(f"/n{n}", b"%d" % n) for n in range(0, 1000, 2)]
        await a.session.perform([Multi(tuple(made))])
        found = await a.session.perform([GetData(f"/n{n % 1000}") for n in range(5000)])
        for n, result in enumerate(found):
            number = n % 1000
            assert (result.code, result.data) == ((NO_NODE, None) if number % 2 else (OK, b"%d" % number))
            assert result.ok == (result.stat is not None)

    zk.run(scenario)


def test_many_watched_reads_in_one_call(zk: Zk) -> None:
    """They travel together, yet each is as if alone: watched where there is a znode, silent where there is none."""

    async def scenario() -> None:
        a, b = await zk.client(), await zk.client()
        await a.session.perform([Create(f"/n{n}", b"%d" % n) for n in range(0, 200, 2)])
        await codes(a, Exists("/n3", watch=True))
        found = await a.session.perform([GetData(f"/n{n}", watch=True) for n in range(200)])
        for n, result in enumerate(found):
            assert (result.code, result.data) == ((NO_NODE, None) if n % 2 else (OK, b"%d" % n))
        assert a.events == []
        await codes(b, SetData("/n0", b""), SetData("/n0", b""), Create("/n1"), Create("/n3"), Delete("/n198"))
        await codes(a, Exists("/"))
        await codes(b, Create("/end"))
        await a.until(lambda: len(a.events) == 3)
        await codes(a, Exists("/n0"))
        assert a.events == [WatchEvent(D, "/n0"), WatchEvent(C, "/n3"), WatchEvent(X, "/n198")]

    zk.run(scenario)


def test_watched_reads_under_way_survive_a_lost_connection(zk: Zk) -> None:
    async def scenario() -> None:
        a, b = await zk.client(), await zk.client()
        await a.session.perform([Create(f"/n{n}") for n in range(0, 100, 2)])
        for round_number in range(5):
            reading = asyncio.ensure_future(a.session.perform([GetData(f"/n{n}", watch=True) for n in range(100)]))
            await asyncio.sleep(0)
            await zk.disconnect(a)
            assert [result.ok for result in await reading] == [n % 2 == 0 for n in range(100)]
            await codes(b, *(SetData(f"/n{n}", b"") for n in range(0, 100, 2)))
            await a.until(lambda: len(a.events) == 50)
            assert sorted(event.path for event in a.events) == sorted(f"/n{n}" for n in range(0, 100, 2)), round_number
            a.events.clear()
        assert a.expirations == 0

    zk.run(scenario)


def test_a_lost_connection_costs_no_answer_and_no_watch(zk: Zk) -> None:
    async def scenario() -> None:
        a, b = await zk.client(), await zk.client()
        await codes(a, Create("/a", b"0"), Create("/b"), Create("/e", ephemeral=True))
        await codes(a, GetData("/a", True), GetChildren("/b", True), Exists("/new", True), Exists("/b", True))
        await zk.disconnect(a)
        await codes(b, SetData("/a", b"1"), Create("/b/c"))
        answers = await a.session.perform([GetData("/a"), *[Exists("/a")] * 200, Exists("/e")])
        assert [answer.code for answer in answers] == [OK] * 202
        assert answers[0].data == b"1"
        await a.until(lambda: len(a.events) == 2)
        await codes(b, Create("/new"), SetData("/b", b""))
        await a.until(lambda: len(a.events) == 4)
        assert set(a.events[:2]) == {WatchEvent(D, "/a"), WatchEvent(LIST, "/b")}
        assert a.events[2:] == [WatchEvent(C, "/new"), WatchEvent(D, "/b")]
        assert a.expirations == 0

    zk.run(scenario)


HUGE = b"x" * (4 << 20)


@pytest.mark.parametrize(
    "op",
    [SetData("/a", HUGE), Create("/c", HUGE), Multi((Check("/a", 1), SetData("/b", b"2"), SetData("/a", HUGE)))],
    ids=["a write", "a creation", "a multi"],
)
def test_a_request_that_is_too_large_is_refused_and_holds_up_nothing(zk: Zk, op: ZkOp) -> None:
    async def scenario() -> None:
        a = await zk.client()
        await codes(a, Create("/a", b"0"), Create("/b"), Create("/e", ephemeral=True), GetData("/a", True))
        before, large, after = await asyncio.gather(
            a.session.perform([SetData("/b", b"1")]), a.session.perform([op]), a.session.perform([SetData("/a", b"1")])
        )
        assert [result.code for result in (*before, *large, *after)] == [OK, ZkCode.BAD_ARGUMENTS, OK]
        found = await a.session.perform([GetData("/a"), GetData("/b"), Exists("/c"), Exists("/e")])
        assert [(result.code, result.data) for result in found[:2]] == [(OK, b"1"), (OK, b"1")]
        assert [result.code for result in found[2:]] == [ZkCode.NO_NODE, OK]
        await a.until(lambda: a.events == [WatchEvent(D, "/a")])
        assert a.expirations == 0 and a.session.connections == 1

    zk.run(scenario)


def test_the_largest_request_that_is_sent_is_done(zk: Zk) -> None:
    async def scenario() -> None:
        a = await zk.client()
        largest = HUGE[: REQUEST_BYTES_MAX - 100]
        assert await codes(a, Create("/a", largest), SetData("/a", largest)) == [OK, OK]
        assert (await a.session.perform([GetData("/a")]))[0].data == largest

    zk.run(scenario)


def test_a_chroot_is_made_and_hides_the_rest(zk: Zk) -> None:
    async def scenario() -> None:
        a, b = await zk.client(), await zk.client("/deep/er")
        made, listed = await b.session.perform([Create("/x", b"1"), GetChildren("/", watch=True)])
        assert made.path == "/x" and listed.children == ("x",)
        assert (await a.session.perform([GetData("/deep/er/x")]))[0].data == b"1"
        await codes(a, Delete("/deep/er/x"))
        await b.until(lambda: bool(b.events))
        assert b.events == [WatchEvent(LIST, "/")]
        assert await codes(b, Exists("/")) == [OK]

    zk.run(scenario)
