"""What each field of a request about groups means to their coordinator, and what of its each field of the answer is, in
every version. The coordinator is played: each number and text of its answers is another one.

Source: Kafka 3.9 `KafkaApis`, `GroupMetadata.summary`, `JoinGroupRequest.json` and its like.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Final

import pytest

from broker_sim.groups.members import Member
from broker_sim.groups.values import GroupState, Join, JoinAnswer, MemberEntry, Sync, SyncAnswer
from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey
from tests.worlds.played_requests import answered, read, versions

E: Final = ErrorCode
#: since when requests name static members
STATIC_SINCE: Final = {ApiKey.JOIN_GROUP: 5, ApiKey.SYNC_GROUP: 3, ApiKey.HEARTBEAT: 3, ApiKey.LEAVE_GROUP: 3}


def noting(noted: list[Any], answer: Any) -> Any:
    async def ask(*asked: Any) -> Any:
        noted.append(asked)
        return answer

    return ask


@pytest.mark.parametrize("client_id", ["client", None])
@pytest.mark.parametrize("instance", ["instance", None])
@pytest.mark.parametrize("name", ["range", None], ids=["with a protocol", "without"])
@pytest.mark.parametrize("version", versions(ApiKey.JOIN_GROUP))
def test_join_group(version: int, name: str | None, instance: str | None, client_id: str | None) -> None:
    noted: list[Any] = []
    answer = JoinAnswer(
        error=E.MEMBER_ID_REQUIRED,
        member_id="m",
        generation=5,
        protocol_type="kind",
        protocol_name=name,
        leader="l",
        members=(
            MemberEntry(member_id="m", group_instance_id=None, metadata=b"one"),
            MemberEntry(member_id="l", group_instance_id="i", metadata=b"two"),
        ),
    )
    body = {
        "group_id": "g",
        "session_timeout": 10,
        "rebalance_timeout": 20,
        "member_id": "old",
        "group_instance_id": instance,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"a"}, {"name": "sticky", "metadata": b"b"}],
    }
    groups = SimpleNamespace(join=noting(noted, answer), new_member_id=lambda prefix: f"{prefix}-new")
    found = answered(ApiKey.JOIN_GROUP, version, body, client_id=client_id, groups=groups)
    named = instance if version >= STATIC_SINCE[ApiKey.JOIN_GROUP] else None
    request = Join(
        member_id="old",
        new_member_id=f"{client_id or '' if named is None else named}-new",
        group_instance_id=named,
        client_id=client_id or "",
        client_host="/10.0.0.9",
        session_timeout_ms=10,
        rebalance_timeout_ms=20 if version >= 1 else 10,
        protocol_type="consumer",
        protocols=(("range", b"a"), ("sticky", b"b")),
        needs_known_member_id=version >= 4,
    )
    assert noted == [("g", request)]
    expected = {
        "error_code": E.MEMBER_ID_REQUIRED,
        "generation_id": 5,
        "protocol_type": "kind",
        "protocol_name": name if name is not None or version >= 7 else "",
        "leader": "l",
        "member_id": "m",
        "members": [
            {"member_id": "m", "group_instance_id": None, "metadata": b"one"},
            {"member_id": "l", "group_instance_id": "i", "metadata": b"two"},
        ],
    }
    assert found == read(ApiKey.JOIN_GROUP, version, expected)


@pytest.mark.parametrize(("kind", "name"), [("consumer", "range"), ("consumer", None), (None, "range"), (None, None)])
@pytest.mark.parametrize("version", versions(ApiKey.SYNC_GROUP))
def test_sync_group(version: int, kind: str | None, name: str | None) -> None:
    """Since version 5 it says in which protocol."""
    noted: list[Any] = []
    answer = SyncAnswer(error=E.REBALANCE_IN_PROGRESS, protocol_type="k", protocol_name="n", assignment=b"mine")
    body = {
        "group_id": "g",
        "generation_id": 5,
        "member_id": "m",
        "group_instance_id": "instance",
        "protocol_type": kind,
        "protocol_name": name,
        "assignments": [{"member_id": "m", "assignment": b"one"}, {"member_id": "l", "assignment": b"two"}],
    }
    found = answered(ApiKey.SYNC_GROUP, version, body, groups=SimpleNamespace(sync=noting(noted, answer)))
    if version >= 5 and None in (kind, name):
        assert noted == []
        assert found == read(ApiKey.SYNC_GROUP, version, {"error_code": E.INCONSISTENT_GROUP_PROTOCOL})
        return
    request = Sync(
        member_id="m",
        generation=5,
        group_instance_id="instance" if version >= STATIC_SINCE[ApiKey.SYNC_GROUP] else None,
        protocol_type=kind if version >= 5 else None,
        protocol_name=name if version >= 5 else None,
        assignments={"m": b"one", "l": b"two"},
    )
    assert noted == [("g", request)]
    expected = {
        "error_code": E.REBALANCE_IN_PROGRESS,
        "protocol_type": "k",
        "protocol_name": "n",
        "assignment": b"mine",
    }
    assert found == read(ApiKey.SYNC_GROUP, version, expected)


@pytest.mark.parametrize("version", versions(ApiKey.HEARTBEAT))
def test_heartbeat(version: int) -> None:
    noted: list[Any] = []

    def heartbeat(*asked: Any) -> ErrorCode:
        noted.append(asked)
        return E.REBALANCE_IN_PROGRESS

    body = {"group_id": "g", "generation_id": 5, "member_id": "m", "group_instance_id": "instance"}
    found = answered(ApiKey.HEARTBEAT, version, body, groups=SimpleNamespace(heartbeat=heartbeat))
    assert noted == [("g", "m", "instance" if version >= STATIC_SINCE[ApiKey.HEARTBEAT] else None, 5)]
    assert found == read(ApiKey.HEARTBEAT, version, {"error_code": E.REBALANCE_IN_PROGRESS})


#: of the group, of each member
LEFT: Final[list[tuple[ErrorCode, list[ErrorCode]]]] = [
    (E.NONE, [E.UNKNOWN_MEMBER_ID, E.NONE]),
    (E.NONE, [E.NONE, E.FENCED_INSTANCE_ID]),
    (E.NOT_COORDINATOR, []),
]


@pytest.mark.parametrize(("error", "of_members"), LEFT)
@pytest.mark.parametrize("version", versions(ApiKey.LEAVE_GROUP))
def test_leave_group(version: int, error: ErrorCode, of_members: list[ErrorCode]) -> None:
    """Before version 3 one member leaves, and its error is the answer's."""
    noted: list[Any] = []

    def leave(*asked: Any) -> tuple[ErrorCode, list[ErrorCode]]:
        noted.append(asked)
        return error, of_members[: len(asked[1])]

    names = [{"member_id": "m", "group_instance_id": None}, {"member_id": "", "group_instance_id": "i"}]
    body = {"group_id": "g", "member_id": "one", "members": names}
    found = answered(ApiKey.LEAVE_GROUP, version, body, groups=SimpleNamespace(leave=leave))
    if version < STATIC_SINCE[ApiKey.LEAVE_GROUP]:
        assert noted == [("g", [("one", None)])]
        assert found["error_code"] == (of_members[0] if of_members else error)
        return
    assert noted == [("g", [("m", None), ("", "i")])]
    rows = [{**row, "error_code": code} for row, code in zip(names, of_members, strict=False)]
    assert found == read(ApiKey.LEAVE_GROUP, version, {"error_code": error, "members": rows})


# -- as tools see them ------------------------------------------------------------------------------------------------


def entry(group_id: str, state: GroupState, *, kind: str | None = "kind", name: str | None = "range") -> Any:
    """A group of two members."""
    members = [
        Member(
            member_id=f"m{number}",
            group_instance_id=instance,
            client_id=f"c{number}",
            client_host=f"/h{number}",
            session_timeout_ms=1,
            rebalance_timeout_ms=1,
            protocols=(("other", b"x"), ("range", b"says%d" % number)),
            assignment=b"has%d" % number,
        )
        for number, instance in enumerate((None, "i"))
    ]
    group = SimpleNamespace(
        group_id=group_id,
        state=state,
        protocol_type=kind,
        protocol_name=name,
        members={m.member_id: m for m in members},
    )
    return SimpleNamespace(group=group)


@pytest.mark.parametrize("kind", ["kind", None])
@pytest.mark.parametrize("state", GroupState)
@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_GROUPS))
def test_describe_groups(version: int, state: GroupState, kind: str | None) -> None:
    """Protocol, subscriptions and assignments are those of a generation that has them."""
    groups = SimpleNamespace(
        error_for=lambda group_id, may_be_empty: E.NOT_COORDINATOR if group_id == "elsewhere" else None,
        entry=lambda group_id: entry("g", state, kind=kind) if group_id == "g" else None,
    )
    body = {"groups": ["g", "elsewhere", "", "g"], "include_authorized_operations": True}
    found = answered(ApiKey.DESCRIBE_GROUPS, version, body, groups=groups)
    is_stable, nobody, everything = state is GroupState.STABLE, -(2**31), 0x148
    described = {
        "group_id": "g",
        "group_state": state.value,
        "protocol_type": kind or "",
        "protocol_data": "range" if is_stable else "",
        "members": [
            {
                "member_id": f"m{number}",
                "group_instance_id": instance,
                "client_id": f"c{number}",
                "client_host": f"/h{number}",
                "member_metadata": b"says%d" % number if is_stable else b"",
                "member_assignment": b"has%d" % number if is_stable else b"",
            }
            for number, instance in enumerate((None, "i"))
        ],
        "authorized_operations": everything,
    }
    nothing = {"protocol_type": "", "protocol_data": "", "members": []}
    elsewhere = {"group_id": "elsewhere", "error_code": E.NOT_COORDINATOR, "group_state": "", **nothing}
    dead = {"group_id": "", "group_state": "Dead", "authorized_operations": everything, **nothing}
    rows = [described, elsewhere | {"authorized_operations": nobody}, dead, described]
    assert found == read(ApiKey.DESCRIBE_GROUPS, version, {"groups": rows})


#: the states asked for, which can be said since version 4 -> the groups that are in one of them
IN_STATES: Final = {(): "abc", ("stable",): "b", ("STABLE", "Empty"): "abc", ("Dead", "nonsense"): ""}
#: the types asked for, which can be said since version 5 -> whether the one that there is is among them
OF_TYPES: Final = {(): True, ("Classic",): True, ("consumer",): False, ("consumer", "CLASSIC"): True}


@pytest.mark.parametrize("is_loading", [False, True])
@pytest.mark.parametrize("types", OF_TYPES)
@pytest.mark.parametrize("states", IN_STATES)
@pytest.mark.parametrize("version", versions(ApiKey.LIST_GROUPS))
def test_list_groups(version: int, states: tuple[str, ...], types: tuple[str, ...], *, is_loading: bool) -> None:
    entries = [entry("a", GroupState.EMPTY), entry("b", GroupState.STABLE, kind=None), entry("c", GroupState.EMPTY)]
    groups = SimpleNamespace(registry=SimpleNamespace(is_active=True), entries=lambda: entries, is_loading=is_loading)
    body = {"states_filter": states, "types_filter": types}
    found = answered(ApiKey.LIST_GROUPS, version, body, groups=groups)
    names = IN_STATES[states if version >= 4 else ()] if version < 5 or OF_TYPES[types] else ""
    rows = [
        {
            "group_id": each.group.group_id,
            "protocol_type": each.group.protocol_type or "",
            "group_state": each.group.state.value,
            "group_type": "classic",
        }
        for each in entries
        if each.group.group_id in names
    ]
    error = E.COORDINATOR_LOAD_IN_PROGRESS if is_loading else E.NONE
    assert found == read(ApiKey.LIST_GROUPS, version, {"error_code": error, "groups": rows})


@pytest.mark.parametrize("version", versions(ApiKey.DELETE_GROUPS))
def test_delete_groups(version: int) -> None:
    """Each once, however often it is named."""
    noted: list[str] = []

    def delete_group(name: str) -> ErrorCode:
        noted.append(name)
        return E.NON_EMPTY_GROUP if name == "b" else E.NONE

    groups = SimpleNamespace(delete_group=delete_group)
    found = answered(ApiKey.DELETE_GROUPS, version, {"groups_names": ["b", "a", "b", "c"]}, groups=groups)
    assert noted == ["b", "a", "c"]
    rows = [{"group_id": name, "error_code": E.NON_EMPTY_GROUP if name == "b" else E.NONE} for name in noted]
    assert found == read(ApiKey.DELETE_GROUPS, version, {"results": rows})


@pytest.mark.parametrize("version", versions(ApiKey.LIST_GROUPS))
def test_before_a_coordinator_has_started_it_lists_nothing(version: int) -> None:
    groups = SimpleNamespace(registry=SimpleNamespace(is_active=False))
    found = answered(ApiKey.LIST_GROUPS, version, {}, groups=groups)
    assert found == read(ApiKey.LIST_GROUPS, version, {"error_code": E.COORDINATOR_NOT_AVAILABLE, "groups": []})
