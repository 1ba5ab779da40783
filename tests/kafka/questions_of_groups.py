"""Questions about groups, their members and their offsets; see `questions`."""

from __future__ import annotations

import time
from typing import Any

from controller.wire.protocol import ApiKey, encode_request

from .sides import LIMIT_S, Side

# -- groups ----------------------------------------------------------------------------------------------------------


def join_body(group: str, member: str = "", **how: Any) -> dict[str, Any]:
    return {
        "group_id": group,
        "session_timeout": 10_000,
        "rebalance_timeout": 10_000,
        "member_id": member,
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff"}],
        **how,
    }


def a_group_of_one(side: Side) -> Any:
    """From the first JoinGroup to the last LeaveGroup, with everything that can be said wrongly in between."""
    group, found = side.group("life"), {}

    def note(name: str, key: int, version: int, body: dict[str, Any]) -> Any:
        found[name] = side.ask(key, version, body)
        return found[name]

    for version in range(8):
        for name, how in (
            ("short session", {"session_timeout": 10}),
            ("long session", {"session_timeout": 9_000_000}),
            ("no group", {"group_id": ""}),
            ("no protocols", {"protocols": []}),
            ("no type", {"protocol_type": ""}),
            ("unknown member", {"member_id": "x"}),
        ):
            note(f"join v{version} {name}", ApiKey.JOIN_GROUP, version, join_body(side.group("none"), **how))
    member = side.call(ApiKey.JOIN_GROUP, 7, join_body(group)).member_id
    note("pending", ApiKey.DESCRIBE_GROUPS, 4, {"groups": [group]})
    note("joined", ApiKey.JOIN_GROUP, 7, join_body(group, member))
    beat = {"group_id": group, "generation_id": 1, "member_id": member, "group_instance_id": None}
    note("completing", ApiKey.DESCRIBE_GROUPS, 4, {"groups": [group]})
    note("beat while completing", ApiKey.HEARTBEAT, 3, beat)
    note("commit while completing", ApiKey.OFFSET_COMMIT, 7, commit_body(side, group, member, 1))
    note("joined again", ApiKey.JOIN_GROUP, 7, join_body(group, member))
    sync: dict[str, Any] = {**beat, "protocol_type": "consumer", "protocol_name": "range", "assignments": []}
    for name, how in (
        ("unknown member", {"member_id": "x"}), ("old generation", {"generation_id": 0}),
        ("new generation", {"generation_id": 2}), ("other type", {"protocol_type": "connect"}),
        ("other name", {"protocol_name": "sticky"}), ("no name", {"protocol_name": None}),
        ("unknown group", {"group_id": side.group("none")}), ("no group", {"group_id": ""}),
        ("unknown instance", {"group_instance_id": "i"}),
        ("unknown instance and member", {"group_instance_id": "i", "member_id": "x"}),
    ):  # fmt: skip
        note(f"sync: {name}", ApiKey.SYNC_GROUP, 5, {**sync, **how})
        if "protocol_type" not in how and "protocol_name" not in how:
            note(f"beat: {name}", ApiKey.HEARTBEAT, 3, {**beat, **how})
    assigned = [{"member_id": member, "assignment": b"mine"}, {"member_id": "stranger", "assignment": b"x"}]
    note("synced", ApiKey.SYNC_GROUP, 5, {**sync, "assignments": assigned})
    note("synced again", ApiKey.SYNC_GROUP, 5, sync)
    note("stable", ApiKey.DESCRIBE_GROUPS, 4, {"groups": [group, side.group("none")]})
    note("beat", ApiKey.HEARTBEAT, 3, beat)
    for version in range(2, 9):
        note(f"commit v{version}", ApiKey.OFFSET_COMMIT, version, commit_body(side, group, member, 1))
    for name, how in (
        ("no member", {"member_id": "", "generation": -1}), ("member, no generation", {"generation": -1}),
        ("stranger", {"member_id": "x"}), ("old", {"generation": 0}), ("unknown topic", {"topic": "nowhere"}),
        ("unknown partition", {"index": 7}), ("long metadata", {"text": "x" * 4097}), ("negative", {"offset": -5}),
        ("no metadata", {"text": None}), ("instance", {"instance": "i"}),
    ):  # fmt: skip
        body = commit_body(side, **{"group": group, "member_id": member, "generation": 1, **how})
        note(f"commit: {name}", ApiKey.OFFSET_COMMIT, 7, body)
    for version in range(1, 8):
        topics = [
            {"name": side.topic("plain"), "partition_indexes": [0, 9]},
            {"name": "nowhere", "partition_indexes": [0]},
        ]
        note(f"fetch v{version}", ApiKey.OFFSET_FETCH, version, {"group_id": group, "topics": topics})
        note(
            f"fetch unknown v{version}",
            ApiKey.OFFSET_FETCH,
            version,
            {"group_id": side.group("none"), "topics": topics},
        )
        if version >= 2:
            note(f"fetch all v{version}", ApiKey.OFFSET_FETCH, version, {"group_id": group, "topics": None})
            note(
                f"fetch all unknown v{version}",
                ApiKey.OFFSET_FETCH,
                version,
                {"group_id": side.group("none"), "topics": None},
            )
    note("delete", ApiKey.DELETE_GROUPS, 1, {"groups_names": [group, side.group("none")]})
    subscribed = {
        "topics": [{"name": side.topic("plain"), "partitions": [{"partition_index": 0}, {"partition_index": 9}]}]
    }
    note("delete offsets", ApiKey.OFFSET_DELETE, 0, {"group_id": group, **subscribed})
    note("delete offsets, unknown group", ApiKey.OFFSET_DELETE, 0, {"group_id": side.group("none"), **subscribed})
    note("delete offsets, no group", ApiKey.OFFSET_DELETE, 0, {"group_id": "", **subscribed})
    note("leave: stranger", ApiKey.LEAVE_GROUP, 1, {"group_id": group, "member_id": "x"})
    note("leave: unknown group", ApiKey.LEAVE_GROUP, 1, {"group_id": side.group("none"), "member_id": "x"})
    note("leave: no group", ApiKey.LEAVE_GROUP, 1, {"group_id": "", "member_id": "x"})
    leavers = [{"member_id": "x", "group_instance_id": None}, {"member_id": "", "group_instance_id": "i"}]
    note("leave: several", ApiKey.LEAVE_GROUP, 3, {"group_id": group, "members": leavers})
    note("leave: several, unknown group", ApiKey.LEAVE_GROUP, 3, {"group_id": side.group("none"), "members": leavers})
    note(
        "leave",
        ApiKey.LEAVE_GROUP,
        3,
        {"group_id": group, "members": [{"member_id": member, "group_instance_id": None}]},
    )
    note("beat of who left", ApiKey.HEARTBEAT, 3, beat)
    note("empty", ApiKey.DESCRIBE_GROUPS, 4, {"groups": [group]})
    for version in range(6):
        answer = side.ask(ApiKey.LIST_GROUPS, version, {"states_filter": []})
        answer["groups"] = [g for g in answer["groups"] if g["group_id"].startswith("life")]
        found[f"list v{version}"] = answer
    answer = side.ask(ApiKey.LIST_GROUPS, 4, {"states_filter": ["empty", "nonsense"]})
    found["list empty"] = [g for g in answer["groups"] if g["group_id"].startswith("life")]
    for types in (["Classic"], ["consumer"], ["consumer", "classic"], ["nonsense"]):
        answer = side.ask(ApiKey.LIST_GROUPS, 5, {"states_filter": [], "types_filter": types})
        found[f"list {types}"] = [g for g in answer["groups"] if g["group_id"].startswith("life")]
    note("commit to an empty group", ApiKey.OFFSET_COMMIT, 7, commit_body(side, group, "", -1))
    note("commit to an empty group with a generation", ApiKey.OFFSET_COMMIT, 7, commit_body(side, group, "x", 1))
    note("commit to an empty group as a stranger", ApiKey.OFFSET_COMMIT, 7, commit_body(side, group, "x", -1))
    note(
        "commit to a new group with a generation",
        ApiKey.OFFSET_COMMIT,
        7,
        commit_body(side, side.group("none"), "x", 1),
    )
    note("join of who left", ApiKey.JOIN_GROUP, 7, join_body(group, member))
    note("delete twice", ApiKey.DELETE_GROUPS, 1, {"groups_names": [group, group]})
    note("gone", ApiKey.DESCRIBE_GROUPS, 4, {"groups": [group]})
    note("fetch of gone", ApiKey.OFFSET_FETCH, 7, {"group_id": group, "topics": None})
    return found


def commit_body(
    side: Side,
    group: str,
    member_id: str,
    generation: int,
    *,
    topic: str | None = None,
    index: int = 0,
    offset: int = 42,
    text: str | None = "note",
    instance: str | None = None,
) -> dict[str, Any]:
    partition = {"partition_index": index, "committed_offset": offset, "committed_metadata": text}
    return {
        "group_id": group,
        "generation_id_or_member_epoch": generation,
        "member_id": member_id,
        "group_instance_id": instance,
        "topics": [{"name": topic or side.topic("plain"), "partitions": [partition]}],
    }


def groups_that_cannot_be_written(side: Side) -> Any:
    """Nothing can be committed: the batches of `__consumer_offsets` may have no size. What is deleted is gone."""
    whole, half, other, found = side.group("whole"), side.group("half"), side.group("other"), {}

    def commit(group: str) -> int:
        answer = side.call(ApiKey.OFFSET_COMMIT, 7, commit_body(side, group, "", -1))
        return int(answer.topics[0].partitions[0].error_code)

    def limit(operation: int) -> None:
        config = {"name": "max.message.bytes", "config_operation": operation, "value": "10"}
        resource = {"resource_type": 2, "resource_name": "__consumer_offsets", "configs": [config]}
        side.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource], "validate_only": False})

    def until_answered(group: str, *, is_refused: bool) -> int:
        """A broker hears of the limit after a while, also of the one that was for the other side."""
        deadline = time.monotonic() + LIMIT_S
        while ((code := commit(group)) != 0) is not is_refused:
            assert time.monotonic() < deadline, "the limit is not heard of"
            time.sleep(0.05)
        return code

    found["commits"] = [until_answered(group, is_refused=False) for group in (whole, half)]
    side.call(ApiKey.OFFSET_COMMIT, 7, commit_body(side, half, "", -1, topic=side.topic("elsewhere")))
    limit(0)
    try:
        found["refused"] = until_answered(other, is_refused=True)
        found["delete"] = side.ask(ApiKey.DELETE_GROUPS, 1, {"groups_names": [whole]})
        rows = [{"name": side.topic("plain"), "partitions": [{"partition_index": 0}]}]
        found["delete offsets"] = side.ask(ApiKey.OFFSET_DELETE, 0, {"group_id": half, "topics": rows})
        for name, group in (("whole", whole), ("half", half)):
            found[f"fetch {name}"] = side.ask(ApiKey.OFFSET_FETCH, 7, {"group_id": group, "topics": None})
            found[f"describe {name}"] = side.ask(ApiKey.DESCRIBE_GROUPS, 4, {"groups": [group]})
    finally:
        limit(1)
    until_answered(other, is_refused=False)
    return found


def static_members(side: Side) -> Any:
    group, found = side.group("static"), {}
    joined = side.call(ApiKey.JOIN_GROUP, 7, join_body(group, group_instance_id="i"))
    first = joined.member_id
    found["joined"] = (joined.error_code, joined.generation_id, first.startswith("i-"))
    mine = {"group_id": group, "generation_id": 1, "member_id": first, "group_instance_id": "i"}
    sync = {**mine, "assignments": [{"member_id": first, "assignment": b"mine"}]}
    found["synced"] = side.ask(ApiKey.SYNC_GROUP, 3, sync)
    again = side.call(ApiKey.JOIN_GROUP, 7, join_body(group, group_instance_id="i"))
    found["again"] = (again.error_code, again.generation_id, again.leader == first, len(again.members))
    found["old member"] = side.ask(ApiKey.HEARTBEAT, 3, mine)
    found["old member syncs"] = side.ask(ApiKey.SYNC_GROUP, 3, sync)
    found["old member commits"] = side.ask(ApiKey.OFFSET_COMMIT, 7, commit_body(side, group, first, 1, instance="i"))
    found["old member joins"] = side.ask(ApiKey.JOIN_GROUP, 7, join_body(group, first, group_instance_id="i"))
    found["old member leaves"] = side.ask(
        ApiKey.LEAVE_GROUP, 3, {"group_id": group, "members": [{"member_id": first, "group_instance_id": "i"}]}
    )
    found["other instance with an id"] = side.ask(ApiKey.JOIN_GROUP, 7, join_body(group, "x", group_instance_id="j"))
    found["described"] = side.ask(ApiKey.DESCRIBE_GROUPS, 4, {"groups": [group]})
    found["leaves by instance"] = side.ask(
        ApiKey.LEAVE_GROUP, 3, {"group_id": group, "members": [{"member_id": "", "group_instance_id": "i"}]}
    )
    return found


def two_members(side: Side) -> Any:
    """The second one joins a stable group; protocols must agree; the first one follows or is left behind."""
    group, found = side.group("pair"), {}
    first = side.call(ApiKey.JOIN_GROUP, 7, join_body(group)).member_id
    found["first"] = side.ask(ApiKey.JOIN_GROUP, 7, join_body(group, first))
    beat = {"group_id": group, "generation_id": 1, "member_id": first}
    side.call(ApiKey.SYNC_GROUP, 3, {**beat, "assignments": [{"member_id": first, "assignment": b"a"}]})
    with side.another() as other:
        found["other protocol"] = other.ask(
            ApiKey.JOIN_GROUP, 7, join_body(group, protocols=[{"name": "sticky", "metadata": b""}])
        )
        found["other type"] = other.ask(ApiKey.JOIN_GROUP, 7, join_body(group, protocol_type="connect"))
        second = other.call(ApiKey.JOIN_GROUP, 7, join_body(group)).member_id
        other.send(encode_request(ApiKey.JOIN_GROUP, 7, 77, "raw", join_body(group, second)))
        deadline = time.monotonic() + 10
        while side.call(ApiKey.HEARTBEAT, 3, beat).error_code == 0 and time.monotonic() < deadline:
            time.sleep(0.05)
        found["beat while preparing"] = side.ask(ApiKey.HEARTBEAT, 3, beat)
        found["sync while preparing"] = side.ask(ApiKey.SYNC_GROUP, 3, {**beat, "assignments": []})
        found["commit while preparing"] = side.ask(ApiKey.OFFSET_COMMIT, 7, commit_body(side, group, first, 1))
        found["preparing"] = side.ask(ApiKey.DESCRIBE_GROUPS, 4, {"groups": [group]})
        rejoined = side.call(ApiKey.JOIN_GROUP, 7, join_body(group, first))
        found["rejoined"] = (
            rejoined.error_code,
            rejoined.generation_id,
            rejoined.leader == first,
            len(rejoined.members),
        )
        other.receive()
        both = {"group_id": group, "generation_id": 2, "assignments": []}
        other.send(encode_request(ApiKey.SYNC_GROUP, 3, 78, "raw", {**both, "member_id": second}))
        assignments = [{"member_id": first, "assignment": b"a"}]
        found["leader syncs"] = side.ask(ApiKey.SYNC_GROUP, 3, {**both, "member_id": first, "assignments": assignments})
        found["follower synced"] = other.receive().hex()
        found["stable"] = side.ask(ApiKey.DESCRIBE_GROUPS, 4, {"groups": [group]})
        for member in (first, second):
            found[f"leave {member == first}"] = side.ask(
                ApiKey.LEAVE_GROUP, 1, {"group_id": group, "member_id": member}
            )
    return found
