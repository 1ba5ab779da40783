"""What `kwob up --like` makes of a cluster file, and what it refuses."""

from __future__ import annotations

import re
import zlib
from argparse import ArgumentTypeError
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from controller.embedded.alike import planned
from controller.local import like as like_module
from controller.local.cluster_file import ClusterError
from controller.local.like import RECORD_BYTES, differs, likeness, parse_scale, read_like
from controller.local.load import client, fill
from controller.local.plan import plan_cluster
from controller.wire.cluster_file import parse
from controller.wire.types import TopicPartition

FILE = """
mode: kraft
configs: {replica.lag.time.max.ms: "4000", no.such.thing: "1"}
brokers:
  - {id: 7, rack: a, log_dirs: [{path: /a}, {path: /b}], configs: {leader.replication.throttled.rate: "5"}}
  - {id: 3, rack: b}
  - {id: 901}
topics:
  orders:
    configs: {min.insync.replicas: "2", no.such.override: "true", retention.ms: "never"}
    partitions:
      - {replicas: [7, 3], bytes: 3000000, isr: [3], leader: 3}
      - {replicas: [3, 7, 901], adding_replicas: [901], bytes: 499000}
      - [3, 7]
  __consumer_offsets: {partitions: [[3]]}
"""


def test_topics_and_their_data_are_those_of_the_file_at_its_scale() -> None:
    made = likeness(parse(FILE), Fraction(1, 1000))
    (orders,) = made.topics
    assert orders.replicas == ((7, 3), (3, 7), (3, 7))
    assert made.records == {TopicPartition("orders", 0): 3}
    assert made.bytes == 3 * 2 * RECORD_BYTES
    assert dict(orders.configs) == {"min.insync.replicas": "2"}
    whole = likeness(parse(FILE), Fraction(1))
    assert whole.records[TopicPartition("orders", 1)] == 499
    assert not likeness(parse(FILE), Fraction(0)).records


def test_of_topics_kafkas_own_alone_are_not_made() -> None:
    """Of others a name may begin with underscores, too."""
    own = ("__consumer_offsets", "__transaction_state", "__share_group_state")
    others = ("t", "_schemas", "__mine", "___", "__consumer_offsets-copy")
    listed = ", ".join(f"{name}: {{partitions: [[1]]}}" for name in (*own, *others))
    made = likeness(parse(f"brokers: [{{id: 1}}]\ntopics: {{{listed}}}"), Fraction(1))
    assert [topic.name for topic in made.topics] == [*others]
    assert list(made.remarks) == [f"{name} is not made: brokers make it when it is needed" for name in own]


def test_brokers_keep_their_ids_and_racks_and_controllers_get_others() -> None:
    made = likeness(parse(FILE), Fraction(1))
    assert list(made.brokers.items()) == [(7, "a"), (3, "b"), (901, "unknown")]
    assert made.log_dirs == 2
    assert made.broker_configs == {7: {"leader.replication.throttled.rate": "5"}}
    plan = plan_cluster(
        data=Path("d"), brokers=3, controllers=2, racks=list(made.brokers.values()),
        ports=range(3), zookeeper_port=1, ids=list(made.brokers),
    )  # fmt: skip
    assert [(b.broker_id, b.rack) for b in plan.brokers] == [(7, "a"), (3, "b"), (901, "unknown")]
    assert plan.controller_ids == (902, 903)


def test_settings_are_those_of_the_file_and_of_its_groups_topic() -> None:
    """With as many partitions a group is kept by the same one."""
    of_groups = ("offsets.topic.num.partitions=1", "offsets.topic.replication.factor=1")
    assert likeness(parse(FILE), Fraction(1)).settings == (*of_groups, "replica.lag.time.max.ms=4000")
    told = FILE.replace("configs: {", 'configs: {offsets.topic.num.partitions: "9", ', 1)
    assert "offsets.topic.num.partitions=9" in likeness(parse(told), Fraction(1)).settings


class Taker:
    """A producer whose records are kept."""

    def __init__(self) -> None:
        self.values: list[bytes] = []
        self._told: list[Callable[[Any, Any], None]] = []

    def produce(self, topic: str, value: bytes, *, on_delivery: Callable[[Any, Any], None], **_: Any) -> None:
        self.values.append(value)
        self._told.append(on_delivery)

    def poll(self, _: float) -> None:
        while self._told:
            self._told.pop()(None, None)

    def flush(self, _: float) -> int:
        self.poll(0)
        return 0


def test_settings_of_a_test_cluster_go_before_those_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(FILE)
    plan, like = planned(
        tmp_path, brokers=None, controllers=1, racks=None, settings={"replica.lag.time.max.ms": "7"}, log_dirs=None,
        seed=None, metrics=False, like=file, scale=0,
    )  # fmt: skip
    assert like is not None and plan.ids == (7, 3, 901)
    assert plan.settings == {**dict(s.split("=", 1) for s in like.settings), "replica.lag.time.max.ms": "7"}


def test_no_compression_makes_less_of_the_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic may have compression of its own, and still gets the bytes of the file."""
    taker, place = Taker(), TopicPartition("t", 0)
    monkeypatch.setattr(client, "ends", lambda bootstrap, of: dict.fromkeys(of, (0, 0)))
    monkeypatch.setattr(client, "producer", lambda *_, **__: taker)
    assert fill.fill("b:1", {place: 50}, record_bytes=RECORD_BYTES, tell=lambda n, of: None) == 50
    whole = b"".join(taker.values)
    assert len(zlib.compress(whole, 9)) > 0.99 * len(whole) > 45 * RECORD_BYTES


def test_what_differs_from_the_file_is_said() -> None:
    told = " / ".join(likeness(parse(FILE), Fraction(1)).remarks)
    for words in ("KRaft", "no.such.thing", "broker 901", "__consumer_offsets", "1 partitions are being moved",
                  "no.such.override is not known", "retention.ms left out"):  # fmt: skip
        assert words in told


MOVED = "1 partitions are being moved in the file; here they are where they were before"
#: a cluster file besides its brokers -> what is made of it
SHAPES: list[tuple[str, dict[str, Any]]] = [
    ("", {"brokers": {1: None}, "log_dirs": 1, "settings": (), "remarks": ()}),
    (
        "topics: {__consumer_offsets: {partitions: [[1, 2, 3], [1, 2], [1, 2, 3]]}}",
        {"settings": ("offsets.topic.num.partitions=3", "offsets.topic.replication.factor=2")},
    ),
    (
        "topics: {t: {partitions: [{replicas: [1, 2], removing_replicas: [2]}, {replicas: [1], adding_replicas: []}]}}",
        {"replicas": ((1, 2), (1,)), "remarks": (MOVED,)},
    ),
    (
        "topics: {t: {configs: {retention.ms: '5'}, partitions: [[1]]}}",
        {"configs": {"retention.ms": "5"}, "remarks": ()},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("rest", "expected"), SHAPES, ids=[row[0] or "nothing else" for row in SHAPES])
def test_what_is_made_of_a_shape(rest: str, expected: dict[str, Any]) -> None:
    ids = (1, 2, 3) if rest else (1,)
    made = likeness(parse(f"brokers: [{', '.join(f'{{id: {n}}}' for n in ids)}]\n{rest}"), Fraction(1))
    of_topic = {"replicas": made.topics[0].replicas, "configs": dict(made.topics[0].configs)} if made.topics else {}
    found = {name: of_topic[name] if name in of_topic else getattr(made, name) for name in expected}
    assert found == expected


def test_tiered_storage_is_left_out() -> None:
    """There is none here: the topic could not be made."""
    text = "brokers: [{id: 1}]\ntopics: {t: {configs: {remote.storage.enable: 'true'}, partitions: [[1]]}}"
    made = likeness(parse(text), Fraction(1))
    assert dict(made.topics[0].configs) == {}
    assert made.remarks[0].startswith("topic t: remote.storage.enable left out: ")


def test_some_racks_that_are_unknown_are_one_rack_and_none_at_all_are_none() -> None:
    some = likeness(parse("brokers: [{id: 1, rack: a}, {id: 2}, {id: 3}]"), Fraction(1))
    assert (some.brokers, some.remarks) == (
        {1: "a", 2: "unknown", 3: "unknown"}, ("no rack is known of broker 2, 3: it is in rack unknown",),
    )  # fmt: skip
    none = likeness(parse("brokers: [{id: 1}, {id: 2}]"), Fraction(1))
    assert (none.brokers, none.remarks) == ({1: None, 2: None}, ())
    named_so = likeness(parse("brokers: [{id: 1, rack: a}, {id: 2, rack: unknown}]"), Fraction(1))
    assert (named_so.brokers, named_so.remarks) == ({1: "a", 2: "unknown"}, ())


@pytest.mark.parametrize(
    ("text", "lacks", "why"),
    [
        ("topics: {t: {partitions: [{replicas: [1], bytes: 5000}]}}", True, "--like with data needs"),
        ("topics: {t: {partitions: [{replicas: [1], bytes: 5}]}}", True, None),
        ("topics: {t: {partitions: [{replicas: [1], bytes: 5000}]}}", False, None),
    ],
)
def test_who_can_write_no_records_is_asked_for_none(
    text: str, lacks: bool, why: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(like_module, "lacking", lambda extras: extras if lacks else [])
    monkeypatch.setattr(like_module, "what_to_install", lambda what, extras: f"{what} needs {extras[0]}")
    file = tmp_path / "c.yaml"
    file.write_text(f"brokers: [{{id: 1}}]\n{text}")
    if why is None:
        assert read_like(file, Fraction(1), free_bytes=1 << 40).topics
        return
    with pytest.raises(ClusterError, match=why):
        read_like(file, Fraction(1), free_bytes=1 << 40)


@pytest.mark.parametrize("count", [200, 201])
def test_no_more_brokers_than_run_here(count: int, tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("brokers: [" + ", ".join(f"{{id: {n}}}" for n in range(count)) + "]")
    if count == 200:
        assert len(read_like(file, Fraction(1), free_bytes=0).brokers) == count
        return
    with pytest.raises(ClusterError, match="has 201 brokers, and 200 is the most that runs here"):
        read_like(file, Fraction(1), free_bytes=0)


@pytest.mark.parametrize(
    ("text", "scale"), [("1/1000", Fraction(1, 1000)), ("0.5", Fraction(1, 2)), ("0", Fraction(0))]
)
def test_a_scale(text: str, scale: Fraction) -> None:
    assert parse_scale(text) == scale


@pytest.mark.parametrize("text", ["2", "-1", "1/0", "all", "", "nan", "inf"])
def test_a_scale_that_is_none(text: str) -> None:
    with pytest.raises(
        ArgumentTypeError, match=re.escape(f"{text!r}: a share from 0 to 1 is expected, such as 1/1000")
    ):
        parse_scale(text)


def test_more_than_the_disk_holds_is_refused_before_anything_starts(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("brokers: [{id: 1}]\ntopics: {t: {partitions: [{replicas: [1], bytes: 8000000000}]}}")
    with pytest.raises(ClusterError, match=r"needs 8,000,000,000 bytes .* --scale 1/4 would fit"):
        read_like(file, Fraction(1), free_bytes=(1 << 30) + 2_000_000_000)
    with pytest.raises(ClusterError, match="no share of it fits"):
        read_like(file, Fraction(1), free_bytes=5)
    assert read_like(file, Fraction(1, 4), free_bytes=(1 << 30) + 2_000_000_000).bytes == 2_000_000_000


@pytest.mark.parametrize("scale", [Fraction(1), Fraction(2, 3)])
@pytest.mark.parametrize("free", [7, 2_000, 3_000_000, 1_999_000_000, 3_000_000_000, 7_999_999_999])
def test_the_share_that_would_fit_does(tmp_path: Path, free: int, scale: Fraction) -> None:
    """A gigabyte is left free; what fits whole is not refused."""
    file = tmp_path / "c.yaml"
    file.write_text("brokers: [{id: 1}]\ntopics: {t: {partitions: [{replicas: [1], bytes: 8000000000}]}}")
    free_bytes = (1 << 30) + free
    if 8_000_000_000 * scale <= free:
        assert read_like(file, scale, free_bytes=free_bytes).bytes <= free
        return
    with pytest.raises(ClusterError, match=r"--scale (1/\d+) would fit") as refused:
        read_like(file, scale, free_bytes=free_bytes)
    fits = parse_scale(str(refused.value).partition("--scale ")[2].split()[0])
    assert read_like(file, fits, free_bytes=free_bytes).bytes <= free < 8_000_000_000 / (fits.denominator - 1 or 1)


@pytest.mark.parametrize(
    ("text", "words"),
    [("brokers: [", "not YAML"), ("brokers: []", "at least 1"), ("brokers: [{id: 1, disks: 3}]", "not known")],
)
def test_a_file_that_is_none(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "c.yaml").write_text(text)
    (tmp_path / "latin.yaml").write_bytes("# ü".encode("latin-1"))
    with pytest.raises(ClusterError, match="utf-8"):
        read_like(tmp_path / "latin.yaml", Fraction(1), free_bytes=1 << 40)
    with pytest.raises(ClusterError, match=words):
        read_like(tmp_path / "c.yaml", Fraction(1), free_bytes=1 << 40)
    with pytest.raises(ClusterError, match="cannot be read"):
        read_like(tmp_path / "none.yaml", Fraction(1), free_bytes=1 << 40)


def test_a_folder_of_other_brokers_is_another_cluster() -> None:
    made = likeness(parse(FILE), Fraction(1))
    assert differs(made, [901, 3, 7]) is None
    assert differs(made, [1, 2, 3]) == "brokers 1, 2, 3 are there, and the file has 7, 3, 901"
