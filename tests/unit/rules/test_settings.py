"""Settings under Kafka's property names: the file format, overrides, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.rules.configs.settings import (
    SettingError,
    flag,
    ignored,
    integer,
    load,
    load_text,
    parse_properties,
    text,
    words,
)

FORMAT = [
    ("equals sign", "broker.id=1", {"broker.id": "1"}),
    ("colon", "broker.id:1", {"broker.id": "1"}),
    ("blank as separator", "broker.id 1", {"broker.id": "1"}),
    ("blanks around the separator", "  broker.id \t = \t 1  ", {"broker.id": "1"}),
    ("only the first separator counts", "a=b=c:d", {"a": "b=c:d"}),
    ("hash and exclamation mark begin comments", "# a=1\n  ! b=2\nc=3", {"c": "3"}),
    ("a hash inside a value is part of it", "a=1 # 2", {"a": "1 # 2"}),
    ("a backslash continues the line, leading blanks dropped", "log.dirs=/a,\\\n    /b", {"log.dirs": "/a,/b"}),
    ("a comment is not continued", "# a \\\nb=1", {"b": "1"}),
    ("two backslashes do not continue", "a=x\\\\\nb=1", {"a": "x\\", "b": "1"}),
    ("escapes", "a=\\t|\\n|\\u0041|\\q", {"a": "|\n|A|q"}),
    ("escaped separators belong to the name", "a\\=b\\:c\\ d=1", {"a=b:c d": "1"}),
    ("any other letter after a backslash is itself", "a=\\z\\U0041", {"a": "zU0041"}),
    ("only a backslash escapes a sign", "A1=2\nb.:3", {"A1": "2", "b.": "3"}),
    ("a name without a value", "a", {"a": ""}),
    ("the last of a name counts", "a=1\na=2", {"a": "2"}),
    ("all kinds of line ends", "a=1\r\nb=2\rc=3\n", {"a": "1", "b": "2", "c": "3"}),
    ("nothing", "\n \t\n", {}),
    ("continued into the end of the file", "a=1\\", {"a": "1"}),
    ("the rest of a continued line is no comment", "a=1\\\n#2\nb=3", {"a": "1#2", "b": "3"}),
    ("an empty line ends a continued one", "a=1\\\n\nb=2", {"a": "1", "b": "2"}),
    ("a line of which nothing is there yet may be empty or a comment", "\\\n\n \\\n# a\n\\\nb=2", {"b": "2"}),
]


@pytest.mark.parametrize(("content", "expected"), [row[1:] for row in FORMAT], ids=[row[0] for row in FORMAT])
def test_the_properties_format(content: str, expected: dict[str, str]) -> None:
    assert parse_properties(content) == expected


def test_a_broken_unicode_escape_is_refused_with_its_line() -> None:
    with pytest.raises(SettingError, match=r"^line 2: .*four hexadecimal digits"):
        parse_properties("a=1\nb=\\u00g0")


@settings(max_examples=100)
@given(st.dictionaries(st.text(min_size=1, max_size=8), st.text(max_size=8).map(str.strip), max_size=5))
def test_what_is_escaped_comes_back(values: dict[str, str]) -> None:
    def escaped(word: str) -> str:
        return "".join(f"\\u{ord(c):04x}" if ord(c) < 0x10000 else c for c in word)

    content = "\n".join(f"{escaped(name)}={escaped(value)}" for name, value in values.items())
    assert parse_properties(content) == values


@settings(max_examples=100)
@given(st.text(alphabet=st.sampled_from("ab=:\\# !\n\r\tu0")))
def test_any_text_is_read_or_refused(content: str) -> None:
    try:
        parse_properties(content)
    except SettingError as error:
        assert str(error).startswith("line ")


#: before a logical line: blanks, empty lines, and continuations of nothing; then a comment, or the line itself
_BEGIN = re.compile(r"(?:[ \t\f]|\\?\n|\\\Z)*([#!][^\n]*)?")
_LINE = re.compile(r"(?:[^\\\n]|\\[^\n]|\\\n[ \t\f]*)*\\?")
_NAME_AND_VALUE = re.compile(r"((?:[^\\=: \t\f]|\\.?)*)[ \t\f]*[=:]?[ \t\f]*(.*)")


def read_plainly(content: str) -> dict[str, str]:
    """The second version, without escapes that stand for another sign than the one behind the backslash."""
    content, at, found = re.sub(r"\r\n?", "\n", content), 0, {}
    while True:
        begin = _BEGIN.match(content, at)
        assert begin is not None
        at = begin.end()
        if at == len(content):
            return found
        if begin[1]:
            continue
        line = _LINE.match(content, at)
        assert line is not None
        at = line.end()
        joined = re.sub(r"(\\[^\n])|\\\n[ \t\f]*|\\$", lambda part: part[1] or "", line[0])
        pair = _NAME_AND_VALUE.fullmatch(joined)
        assert pair is not None
        name, value = (re.sub(r"\\(.)", r"\1", part) for part in pair.groups())
        found[name] = value.strip()


@settings(max_examples=1_000)
@given(st.text(alphabet=st.sampled_from("ab=:\\# !\n\r\f"), max_size=30))
def test_both_versions_of_the_format_agree(content: str) -> None:
    assert parse_properties(content) == read_plainly(content)


REFUSED = [
    (
        "a slip, with the nearest name",
        "replica.lag.time.ms=3",
        ["replica.lag.time.ms", "'3'", "replica.lag.time.max.ms"],
    ),
    ("no number", "num.partitions=many", ["num.partitions", "'many'", "a whole number from 1 to 2147483647"]),
    ("a fraction", "num.partitions=1.5", ["num.partitions", "'1.5'"]),
    ("below the least", "num.partitions=0", ["num.partitions", "'0'", "from 1"]),
    ("too large for an int", "num.partitions=2147483648", ["to 2147483647"]),
    ("too large for a long", "replica.lag.time.max.ms=9223372036854775808", ["to 9223372036854775807"]),
    ("other digits than ASCII", "num.partitions=\N{ARABIC-INDIC DIGIT THREE}", ["num.partitions"]),
    ("neither true nor false", "auto.leader.rebalance.enable=yes", ["'yes'", "true or false"]),
    ("not one of the choices", "log.cleanup.policy=compact,drop", ["'compact,drop'", "one of compact, delete"]),
    ("a slip in a list, with what lists may be", "log.dir.s=1", ["(value '1')", "log.dirs (any text)"]),
    ("a slip in another list", "metric.reporter=x", ["metric.reporters (a comma-separated list)"]),
    ("not a double", "log.cleaner.min.cleanable.ratio=half", ["'half'", "a number"]),
]


@pytest.mark.parametrize(("content", "parts"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_refused_in_one_line_with_name_value_and_what_is_allowed(content: str, parts: list[str]) -> None:
    with pytest.raises(SettingError) as refused:
        load_text(content)
    assert all(part in str(refused.value) for part in parts)
    assert "\n" not in str(refused.value)


def test_overrides_come_after_the_file(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("num.partitions=3\nbroker.rack=a\n")
    assert load(path, ["num.partitions=6", " min.insync.replicas = 2 "]) == {
        "num.partitions": "6",
        "broker.rack": "a",
        "min.insync.replicas": "2",
    }


@pytest.mark.parametrize("override", ["num.partitions", "=3", ""])
def test_an_override_without_name_or_value_is_refused(override: str) -> None:
    with pytest.raises(SettingError, match="expected name=value"):
        load(None, [override])


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"none\.properties: No such file"):
        load(tmp_path / "none.properties")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(SettingError, match="UTF-8"):
        load(tmp_path / "binary")


def test_names_of_a_real_cluster_that_are_not_used_are_named_once() -> None:
    given_ = load_text("ssl.keystore.location=/k\nlistener.name.internal.ssl.key=x\nhost.name=h\nnum.partitions=3")
    assert ignored(given_, {"num.partitions"}) == (
        "host.name",
        "listener.name.internal.ssl.key",
        "ssl.keystore.location",
    )


def test_values_are_read_by_type() -> None:
    given_ = load_text("num.partitions=3\nauto.create.topics.enable=TRUE\nlog.dirs=/a, ,/b\nbroker.rack=")
    assert integer(given_, "num.partitions", 1) == 3
    assert integer(given_, "default.replication.factor", 7) == 7
    assert flag(given_, "auto.create.topics.enable", False) is True
    assert flag(given_, "delete.topic.enable", True) is True
    assert words(given_, "log.dirs") == ("/a", "/b")
    assert words(given_, "log.dir", ["/tmp"]) == ("/tmp",)
    assert text(given_, "broker.rack") is None


@pytest.mark.parametrize("value", ["nan", "inf", "1_0", "\u0661"])
def test_what_java_reads_as_no_double_is_refused_at_a_start(value: str) -> None:
    with pytest.raises(SettingError, match="allowed: a number"):
        load_text("", [f"log.cleaner.io.max.bytes.per.second={value}"])
