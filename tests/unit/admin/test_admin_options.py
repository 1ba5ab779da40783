"""Command lines: joptsimple's rules as a table (admin.md §0), and Java's integers."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.admin.reassignment import options as reassign_options
from controller.admin.toolkit.options import Arguments, Option, OptionFailure, OptionTable, UsageExit, java_integer
from controller.admin.toolkit.texts import V39

TABLE = OptionTable(
    "It does things.",
    [
        Option(name="topic", argument="topic", help="A topic."),
        Option(name="partitions", argument="# of partitions", type="Integer", help="A number."),
        Option(name="throttle", argument="bytes", type="Long", default="-1", help="A rate."),
        Option(name="list", help="A flag."),
        Option(name="state", argument="", optional=True, help="May have a value."),
    ],
)

PARSED = [
    ("value as the next word", ["--topic", "a"], {"topic": ["a"]}),
    ("value after =", ["--topic=a"], {"topic": ["a"]}),
    ("single dash", ["-topic", "a"], {"topic": ["a"]}),
    ("single dash with =", ["-topic=a"], {"topic": ["a"]}),
    ("a value may look like an option", ["--topic", "--list"], {"topic": ["--list"]}),
    ("a value may hold =", ["--topic=a=b"], {"topic": ["a=b"]}),
    ("nothing after = is an empty value", ["--topic=", "a"], {"topic": [""]}),
    ("stray words are ignored", ["x", "--list", "y"], {"list": []}),
    ("a flag ignores what follows =", ["--list=3"], {"list": []}),
    ("repeated options keep all values", ["--topic", "a", "--topic", "b"], {"topic": ["a", "b"]}),
    ("-- ends the options", ["--list", "--", "--topic"], {"list": []}),
    ("an optional value may be absent", ["--state", "--list"], {"state": [], "list": []}),
    ("an optional value may be there", ["--state", "stable"], {"state": ["stable"]}),
]


@pytest.mark.parametrize(("argv", "expected"), [row[1:] for row in PARSED], ids=[row[0] for row in PARSED])
def test_parses(argv: list[str], expected: dict[str, list[str]]) -> None:
    args = TABLE.parse(argv)
    assert {name: args.values(name) for name in args.names} == expected


REFUSED = [
    ("unknown option", ["--bogus"], "bogus is not a recognized option"),
    ("no abbreviation", ["--top", "a"], "top is not a recognized option"),
    ("unknown single dash names its first letter", ["-bogus"], "b is not a recognized option"),
    ("no value left", ["--topic"], "Option topic requires an argument"),
]


@pytest.mark.parametrize(("argv", "message"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_refuses(argv: list[str], message: str) -> None:
    with pytest.raises(OptionFailure) as refused:
        TABLE.parse(argv)
    assert str(refused.value) == message


def _used(argv: list[str], name: str) -> int | None:
    return TABLE.parse(argv).integer(name)


def test_values_are_converted_when_used() -> None:
    args = TABLE.parse(["--partitions", "abc", "--topic", "a", "--topic", "b"])
    with pytest.raises(OptionFailure, match=r"^Cannot parse argument 'abc' of option partitions$"):
        args.integer("partitions")
    with pytest.raises(OptionFailure, match=r"^Found multiple arguments for option topic, but you asked for only one$"):
        args.value("topic")


def test_integers_have_javas_limits() -> None:
    assert _used(["--throttle", str(2**31)], "throttle") == 2**31
    assert _used([], "throttle") == -1
    assert _used([], "partitions") is None
    with pytest.raises(OptionFailure):
        _used(["--partitions", str(2**31)], "partitions")
    assert [java_integer(text) for text in ("+5", "-5", " 5", "5.0", "", "-", "٥", "1_0")] == [5, -5, *[None] * 6]


def test_checks_say_the_first_fault_only() -> None:
    args: Arguments = TABLE.parse(["--list", "--topic", "a"])
    with pytest.raises(UsageExit, match=r'^Missing required argument "\[partitions\]"$'):
        args.require("topic", "partitions", "state")
    with pytest.raises(UsageExit, match=r"""^Option "\[topic\]" can't be used with option "\[list\]"$"""):
        args.refuse_with("topic", "state", "list")


def test_help_is_two_columns_by_name() -> None:
    lines = TABLE.help().splitlines()
    assert lines[0].split() == ["Option", "Description"]
    assert all(len(line) <= 80 for line in lines)
    heads = [line.split()[0] for line in lines[2:] if line.startswith("--")]
    assert heads == sorted(heads)
    assert {"--help", "--version", "--json"} <= set(heads)
    assert any("(default: -1)" in line for line in lines)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.text(max_size=12), max_size=6))
def test_any_words_are_parsed_or_refused(argv: list[str]) -> None:
    try:
        TABLE.parse(argv)
    except OptionFailure as refused:
        assert str(refused)


#: What kafka-reassign-partitions takes with each action, beside what it needs (KIP-455; spec admin.md §3.1).
PERMITTED = {
    "verify": {"preserve-throttles", "progress"},
    "generate": {"disable-rack-aware", "strategy"},
    "execute": {
        "additional", "throttle", "replica-alter-log-dirs-throttle", "timeout", "progress", "rollback-json-file",
        "dry-run",
    },
    "cancel": {"preserve-throttles", "timeout"},
    "list": {"progress"},
}  # fmt: skip
NEEDED = {"generate": {"topics-to-move-json-file", "broker-list"}, "list": set[str]()}
OWN = set.union(*PERMITTED.values(), NEEDED["generate"], {"reassignment-json-file"})


@pytest.mark.parametrize("action", PERMITTED)
def test_each_option_of_a_reassignment_goes_with_its_actions_alone(action: str) -> None:
    needed = NEEDED.get(action, {"reassignment-json-file"})
    for option in sorted(OWN):
        words = [f"--{action}", "--bootstrap-server", "b:1"]
        for name in sorted({option, *needed}):
            argument = reassign_options.TABLE[name].argument
            words += [f"--{name}", *([] if argument is None else ["kafka" if name == "strategy" else "1"])]
        refusal = ""
        try:
            reassign_options.check(V39, reassign_options.TABLE.parse(words))
        except UsageExit as error:
            refusal = str(error)
        may = option in PERMITTED[action] | needed
        assert refusal == ("" if may else f'Option "[{option}]" can\'t be used with action "[{action}]"'), words
