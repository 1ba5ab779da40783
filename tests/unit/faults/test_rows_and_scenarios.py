"""Rows and scenario files: what is meant, and what is refused with which words."""

from __future__ import annotations

from typing import Any

import pytest

from controller.wire import fault_scenario as scenario
from controller.wire.errors import ErrorCode
from controller.wire.fault_rows import KINDS, ApiFault, CutLink, FaultError, Kill, SlowLink, decode, encode, parse_row
from controller.wire.types import BrokerId

CONCERNS = [
    ("everybody", {}, 4, "a", True),
    ("one broker", {"broker": 4}, 4, None, True),
    ("another broker", {"broker": 5}, 4, None, False),
    ("one of a list", {"broker": [3, 4]}, 4, None, True),
    ("a rack", {"rack": "a"}, 4, "a", True),
    ("another rack", {"rack": "b"}, 4, "a", False),
    ("a broker that is in another rack", {"broker": 4, "rack": "b"}, 4, "a", False),
]


@pytest.mark.parametrize(("_", "columns", "broker", "rack", "expected"), CONCERNS, ids=[row[0] for row in CONCERNS])
def test_whom_a_row_concerns(_: str, columns: dict[str, Any], broker: int, rack: str | None, expected: bool) -> None:
    assert parse_row({"fault": "kill", **columns}).concerns(BrokerId(broker), rack) is expected


LINKS = [
    ("all of broker 1's network, seen from 1", {"broker": 1}, 1, 2, True),
    ("and what comes from outside", {"broker": 1}, 1, None, True),
    ("but not what 2 opens to it, which 1 sees as coming from outside", {"broker": 1}, 2, 1, False),
    ("a pair, from the one end", {"broker": 1, "peer": 2}, 1, 2, True),
    ("a pair, from the other end", {"broker": 1, "peer": 2}, 2, 1, True),
    ("not a third one", {"broker": 1, "peer": 2}, 1, 3, False),
    ("a pair is not about clients", {"broker": 1, "peer": 2}, 1, None, False),
    ("a rack's links with 9", {"rack": "a", "peer": 9}, 1, 9, True),
    ("and from 9 with the rack", {"rack": "a", "peer": 9}, 9, 1, True),
]


@pytest.mark.parametrize(("_", "columns", "near", "far", "expected"), LINKS, ids=[row[0] for row in LINKS])
def test_which_link_a_row_is_about(_: str, columns: dict[str, Any], near: int, far: int | None, expected: bool) -> None:
    row = parse_row({"fault": "cut_link", **columns})
    assert isinstance(row, CutLink)
    ends = (BrokerId(near), "a", None if far is None else BrokerId(far), "a")
    assert row.is_between(*ends) is expected


def test_an_error_has_a_name_or_a_number() -> None:
    for code in ("NOT_LEADER_OR_FOLLOWER", 6, "6"):
        row = parse_row({"fault": "api", "api": "Fetch", "action": "error", "error_code": code})
        assert isinstance(row, ApiFault)
        assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize(
    ("client", "client_id", "expected"),
    [
        (None, None, True),
        (None, "a", True),
        ("*", None, True),
        ("a*", None, False),
        ("a*", "ab", True),
        ("a", "A", False),
    ],
)
@pytest.mark.parametrize(("sender", "met"), [(None, True), (1, True), (2, False)])
def test_whose_requests_a_row_is_about(
    client: str | None, client_id: str | None, expected: bool, sender: int | None, met: bool
) -> None:
    row = parse_row({"fault": "api", "api": "Fetch", "action": "drop", "client": client, "sender": sender})
    assert isinstance(row, ApiFault)
    assert row.is_from(1, client_id) is (expected and met)
    assert row.is_from(None, client_id) is (expected and sender is None)


def test_brokers_have_one_order_and_no_repetition_in_a_row_and_in_what_is_told_of_it() -> None:
    row = parse_row({"fault": "kill", "broker": [3, 1, 3], "id": "a", "from_ms": 1, "until_ms": 2})
    assert row == parse_row({"fault": "kill", "broker": (1, 3), "id": "a", "from_ms": 1, "until_ms": 2})
    assert row.about() == {"broker": [1, 3]}
    api = parse_row({"fault": "api", "api": "Fetch", "action": "drop", "rack": "a", "client": None, "nth": 2})
    assert api.about() == {"api": "Fetch", "action": "drop", "rack": "a", "nth": 2}


REFUSED_ROWS = [
    ("a kind that is none", {"fault": "rust"}, "fault: 'rust' does not exist; there are pause_replication"),
    ("no kind", {}, "fault: is missing"),
    ("a column that is none", {"fault": "kill", "brokr": 1}, "brokr: kill has no such column; there are broker, rack"),
    ("no broker at all", {"fault": "kill", "broker": []}, "broker: an empty list means no broker"),
    ("a word as a broker", {"fault": "kill", "broker": "x"}, "broker: .*integer.*'x'"),
    ("nothing slow", {"fault": "slow_disk"}, "give bytes_per_second, delay_ms or jitter_ms"),
    ("a rate of nothing", {"fault": "slow_disk", "bytes_per_second": 0}, "bytes_per_second: .*greater than or equal"),
    ("nth and every", {"fault": "api", "api": "Fetch", "action": "drop", "nth": 1, "every": 2}, "nth or every"),
    ("a delay of nothing", {"fault": "api", "api": "Fetch", "action": "delay"}, "needs delay_ms"),
    ("an unknown error", {"fault": "api", "api": "Fetch", "action": "error", "error_code": "X"}, "no error.*'X'"),
    ("a chance above 1", {"fault": "api", "api": "Fetch", "action": "drop", "chance": 2}, "chance: .*less than"),
    ("a partition of no topic", {"fault": "pause_replication", "partition": 1}, "partition needs topic"),
    (
        "a number as an API",
        {"fault": "api", "api": 5, "action": "drop"},
        "^api: Input should be a valid string; got 5$",
    ),
    ("a word among brokers", {"fault": "kill", "broker": [1, "x"]}, "^broker: .*valid integer.*'x'"),
    ("a column that is missing", {"fault": "fail_log_dir"}, "^log_dir: Field required$"),
    (
        "a path that cannot be",
        {"fault": "fail_log_dir", "log_dir": "a\0b"},
        r"^log_dir: there is no such path: 'a\\x00b'$",
    ),
    ("a path of a disk", {"fault": "slow_disk", "delay_ms": 1, "log_dir": "\0"}, "^log_dir: there is no such path"),
    ("half a sign", {"fault": "fail_log_dir", "log_dir": "a\ud800"}, "^log_dir: there is no such path"),
    ("a kind that is a list", {"fault": ["kill"]}, "^fault: "),
    ("an end before the begin", {"fault": "kill", "from_ms": 5, "until_ms": 5}, "until_ms 5 must be after"),
]


@pytest.mark.parametrize(("_", "columns", "message"), REFUSED_ROWS, ids=[row[0] for row in REFUSED_ROWS])
def test_a_wrong_row_is_refused_with_what_is_allowed(_: str, columns: dict[str, Any], message: str) -> None:
    with pytest.raises(FaultError, match=message):
        parse_row(columns)


def test_an_id_is_there_once() -> None:
    with pytest.raises(FaultError, match="line 2: id: 'a' is there twice"):
        decode('{"fault":"kill","id":"a"}\n{"fault":"stop","id":"a"}')


def test_comments_and_blank_lines_of_a_file_count_as_lines_only() -> None:
    assert decode('# a\n\n  # {"fault"\n \t\n{"fault":"kill"}\n{"fault":"kill"}\n') == (Kill(), Kill())
    with pytest.raises(FaultError, match="line 3: fault: 'rust'"):
        decode('# a\n\n{"fault":"rust"}')
    for text in ("x", "[]", '"kill"', "1", "[" * 100_000):
        with pytest.raises(FaultError, match="line 2: not a JSON object"):
            decode(f"#\n{text}")


def test_every_kind_survives_its_file() -> None:
    rows = [
        parse_row({"fault": kind, "broker": [1, 2], "rack": "a", "id": kind, "from_ms": 1, "until_ms": 2, **columns})
        for kind, columns in {
            **{kind: {} for kind in KINDS},
            "slow_disk": {"delay_ms": 1},
            "slow_link": {"jitter_ms": 1, "peer": 3},
            "api": {"api": "Fetch", "action": "delay", "delay_ms": 3, "client": "x*", "every": 2},
            "fail_log_dir": {"log_dir": "d"},
        }.items()
    ]
    assert decode(encode(rows)) == tuple(rows)


# -- scenarios ---------------------------------------------------------------------------------------------------------

TEXT = """
# a comment
faults:
  - {at: 10s, for: 1m, fault: kill, rack: b}
  - fault: slow_link
    broker: [1, 2]
    peer: 3
    delay_ms: 20
  - at: 250ms
    fault: expire_session
"""


def test_a_scenario_is_steps_in_the_order_of_their_begin() -> None:
    plan = scenario.parse(TEXT)
    assert [(s.at_ms, s.end_ms, s.row.fault, s.row.id) for s in plan.steps] == [
        (0, 70_000, "slow_link", "s2"),  # without `for`: to the end
        (250, 251, "expire_session", "s3"),  # once
        (10_000, 70_000, "kill", "s1"),
    ]
    assert plan.length_ms == 70_000
    slow, _, kill = plan.rows(1_000_000)
    assert isinstance(slow, SlowLink) and isinstance(kill, Kill)
    assert (slow.broker, slow.peer, slow.delay_ms) == ((1, 2), 3, 20)
    assert (kill.from_ms, kill.until_ms) == (1_010_000, 1_070_000)


def test_json_is_a_scenario_too_and_an_end_cuts() -> None:
    plan = scenario.parse('{"end": 5, "faults": [{"fault": "stop", "broker": 1, "for": "1h"}]}')
    assert [(s.at_ms, s.end_ms) for s in plan.steps] == [(0, 5_000)]


def test_where_other_parts_may_stand_beside_the_faults_may_be_left_out() -> None:
    assert scenario.parse("load: {}\nend: 5s", beside=("load",)) == scenario.Scenario(steps=(), length_ms=5_000)
    assert scenario.parse("load: {}", beside=("load",)) == scenario.Scenario(steps=(), length_ms=0)
    with pytest.raises(FaultError, match=r"'load' is not known; there are faults, end \(with others, kwob scenario"):
        scenario.parse("load: {}")


def test_an_expired_session_lasts_as_long_as_it_says() -> None:
    plan = scenario.parse("faults: [{fault: expire_session, for: 2s}, {fault: stop, for: 3s}, {fault: kill, at: 1}]")
    assert [(s.at_ms, s.end_ms) for s in plan.steps] == [(0, 2_000), (0, 3_000), (1_000, 3_000)]


def test_as_many_faults_as_are_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scenario, "MAX_ROWS", 2)
    fault = "\n- {fault: stop, for: 1s}"
    assert len(scenario.parse("faults:" + 2 * fault).steps) == 2
    with pytest.raises(FaultError, match="3 faults; allowed are 2"):
        scenario.parse("faults:" + 3 * fault)


REFUSED = [
    ("nothing", "", "is empty"),
    ("no YAML", "faults: [", "line 1: not YAML"),
    ("a list", "- fault: kill", "line 1: the file must be a mapping"),
    ("another key", "fault: []", "line 1: 'fault' is not known; there are faults, end"),
    ("no faults", "end: 5s", "`faults` is missing"),
    ("an empty list", "faults: []", "at least one fault"),
    ("a fault that is a word", "faults:\n- kill", "line 2: fault 1 must be a mapping"),
    ("a wrong row", "faults:\n- fault: stop\n  broker: 1\n- fault: kill\n  broker: x", "line 5, fault 2: broker"),
    ("a column that is none", "faults:\n- fault: kill\n  brokr: 1", "line 3, fault 1: brokr: .*rack, at, for$"),
    ("a time that is none", "faults:\n- fault: kill\n  at: soon", "fault 1: at: 'soon' is no time; expected"),
    ("a window in ms", "faults:\n- fault: kill\n  from_ms: 3", "line 3, fault 1: from_ms: give `at` and `for`"),
    ("a key twice", "faults:\n- fault: kill\n  at: 1\n  at: 2", "line 4: 'at' is there twice"),
    ("something deeper", "faults:\n- fault: kill\n  broker: [[1]]", "line 3: expected a value or a list"),
    ("a fault with no time left", "faults:\n- {fault: kill, at: 3s}", "line 2, fault 1: begins at 3s.*give it `for`"),
    ("no YAML further down", "faults:\n- fault: kill\n  at: [\nend: 5s", "line 4: not YAML"),
    ("no time at all", "faults:\n- fault: kill\n  for: 0s", "line 2, fault 1: for: must be longer than 0"),
    (
        "a column that is missing",
        "faults:\n- fault: stop\n- fault: fail_log_dir",
        "line 3, fault 2: log_dir: Field requ",
    ),
    ("a mapping as a value", "faults:\n- fault: kill\n  broker: {1: 2}", "line 3: expected a value or a list"),
    ("a day that is none", "faults:\n- fault: kill\n  rack: 2020-13-45", "line 3: month must be in"),
    ("a key that is a list", "faults:\n- fault: kill\n  [a]: 1", "line 3, fault 1: .: kill has no such column"),
    ("an end that is none", "faults:\n- fault: kill\nend: late", "line 3: end: 'late' is no time"),
    ("an end before the begin", "end: 2s\nfaults:\n- {fault: kill, at: 2s}", "begins at 2s, when the scenario ends"),
    ("a fault after the last end", "faults: [{fault: stop, for: 2}, {fault: kill, at: 3}]", "begins at 3s.*(3s)"),
    ("an alias bomb", "faults: &a [*a]", "line 1: "),
]


@pytest.mark.parametrize(("_", "text", "message"), REFUSED, ids=[row[0] for row in REFUSED])
def test_a_wrong_scenario_is_refused_with_file_line_and_fault(_: str, text: str, message: str) -> None:
    with pytest.raises(FaultError, match=message) as caught:
        scenario.parse(text, "s.yaml")
    assert str(caught.value).startswith("s.yaml")


@pytest.mark.parametrize(
    ("text", "expected"), [("250ms", 250), ("5s", 5000), (1.5, 1500), ("2m", 120_000), ("1h", 3_600_000)]
)
def test_times(text: Any, expected: int) -> None:
    assert scenario.parse_time_ms(text) == expected
    assert scenario.parse_time_ms(scenario.format_time(expected)) == expected


@pytest.mark.parametrize("text", ["", "-1s", "5 s", "1w", True, "8000h", None, "9" * 400 + "h"])
def test_no_times(text: Any) -> None:
    with pytest.raises(ValueError, match=r"no time|7 days"):
        scenario.parse_time_ms(text)
