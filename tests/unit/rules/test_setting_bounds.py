"""What settings of a start may be at their edges, which ports a start may take, and which names a topic may have."""

from __future__ import annotations

import pytest

from controller.rules.configs.listeners import ListenerError, ListenerProperties, NodeListener, plan_listeners
from controller.rules.configs.settings import LEAST, SettingError, check, flag, integer, load_text, parse_properties
from controller.rules.topic_names import check_topic_name, collisions
from controller.wire.errors import ErrorCode, KafkaError

#: the least value of each whole number that has one; a second time, so that none changes unseen
BOUNDS = """
-1 broker.id
0 controlled.shutdown.max.retries group.initial.rebalance.delay.ms leader.imbalance.per.broker.percentage
0 log.index.interval.bytes log.segment.delete.delay.ms max.incremental.fetch.session.cache.slots message.max.bytes
0 offset.metadata.max.bytes replica.fetch.backoff.ms replica.fetch.max.bytes replica.fetch.min.bytes
0 replica.fetch.response.max.bytes replica.fetch.wait.max.ms
1 default.replication.factor group.max.size leader.imbalance.check.interval.seconds min.insync.replicas num.io.threads
1 num.network.threads num.partitions num.replica.fetchers offsets.commit.timeout.ms offsets.retention.minutes
1 offsets.topic.num.partitions offsets.topic.replication.factor offsets.topic.segment.bytes
1 replica.high.watermark.checkpoint.interval.ms replica.lag.time.max.ms replica.socket.timeout.ms
1 replication.quota.window.num replication.quota.window.size.seconds request.timeout.ms socket.request.max.bytes
1 zookeeper.connection.timeout.ms zookeeper.max.in.flight.requests zookeeper.session.timeout.ms
4 log.index.size.max.bytes
14 log.segment.bytes
1024 fetch.max.bytes
"""
TABLE = {name: int(line.split()[0]) for line in BOUNDS.strip().splitlines() for name in line.split()[1:]}
LONGS = ("leader.imbalance.check.interval.seconds", "log.segment.delete.delay.ms",
         "replica.high.watermark.checkpoint.interval.ms", "replica.lag.time.max.ms")  # fmt: skip


def test_whole_numbers_begin_at_their_least_and_end_with_their_type() -> None:
    assert set(LEAST) == set(TABLE)
    unbounded = {"log.roll.hours": -(2**31), "background.threads": -(2**31), "log.retention.bytes": -(2**63)}
    for name, least in {**TABLE, **unbounded}.items():
        most = 2**63 - 1 if name in (*LONGS, "log.retention.bytes") else 2**31 - 1
        for value in (least, most):
            assert integer({name: str(value)}, name, 5) == value
        for text in (str(least - 1), str(most + 1), "", "-", "--1", "1 ", "x", "9" * 30, f"-{'9' * 30}", "9" * 5_000):
            with pytest.raises(SettingError, match=f"setting {name}: .*allowed: a whole number from {least} to {most}"):
                check(name, text)
            with pytest.raises(SettingError):
                integer({name: text}, name, 5)


def test_flags_are_true_false_or_refused() -> None:
    name = "delete.topic.enable"
    assert [flag({name: text}, name, True) for text in ("true", "TRUE", "false", "False")] == [True, True, False, False]
    for text in ("", "yes", "1", " true"):
        with pytest.raises(SettingError, match="allowed: true or false"):
            flag({name: text}, name, True)


#: (setting, what it may be, what it may not be, the words of a refusal)
CHOICES = [
    ("log.cleanup.policy", ["compact", "delete", "compact,delete", ""], ["none", "delete,none", "compact,,delete"],
     "one of compact, del"),
    ("compression.type", ["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"],
     ["none", "LZ4", "gzip,lz4", ""], "one of "),
    ("log.message.timestamp.type", ["CreateTime", "LogAppendTime"], ["createtime", ","],
     "one of CreateTime, LogAppendTime"),
    ("security.inter.broker.protocol", ["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"], ["TLS"], "one of PLAINTEXT"),
    ("kwob.isr.profile", ["P26", "P33", "P36", "P37"], ["P25", "P26,P33"], "one of P26, P33, P36, P37"),
    ("log.cleaner.min.cleanable.ratio", ["0", "0.5", "1e-3"], ["half", ""], "a number"),
    ("listeners", ["anything at all"], [], ""),
    ("listener.name.internal.ssl.key", ["anything"], [], ""),
]  # fmt: skip


@pytest.mark.parametrize(("name", "fine", "refused", "words"), CHOICES, ids=[row[0] for row in CHOICES])
def test_words(name: str, fine: list[str], refused: list[str], words: str) -> None:
    for text in fine:
        check(name, text)
    for text in refused:
        with pytest.raises(SettingError, match=f"setting {name}: value {text!r} is not allowed; allowed: {words}"):
            check(name, text)


def test_where_a_line_begins_is_named_though_it_goes_on() -> None:
    with pytest.raises(SettingError, match=r"^line 3: "):
        parse_properties("a=1\n\nb=\\\n  \\\n\\uzzzz\nc=1")
    with pytest.raises(SettingError, match=r"^override 'x': expected name=value"):
        load_text("", ["x"])


# -- ports ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("port", "nodes", "fits"), [(65534, 2, True), (65535, 2, False), (65535, 1, True), (0, 9, True)]
)
def test_ports_that_count_up_end_at_the_last(port: int, nodes: int, fits: bool) -> None:
    def ports() -> list[int]:
        found = plan_listeners(ListenerProperties(), argument=f"h:{port}", host_name="me", nodes=nodes)
        return [listeners[0].port for listeners in found.nodes]

    if fits:
        assert ports() == [port + n if port else 0 for n in range(nodes)]
    else:
        with pytest.raises(ListenerError, match=f"{nodes} consecutive ports from {port} go above 65535"):
            ports()


def test_what_others_are_told_once_it_is_bound() -> None:
    told = NodeListener(host="h", port=0, advertised_host="a", advertised_port=7).endpoint("bound", 1)
    assert (told.host, told.port, told.listener) == ("a", 7, "PLAINTEXT")
    assert NodeListener(host="h", port=0, name="IN").endpoint("bound", 1).host == "h"
    told = NodeListener(host="", port=0).endpoint("bound", 1)
    assert (told.host, told.port) == ("bound", 1)


# -- names of topics --------------------------------------------------------------------------------------------------

#: a name -> why no topic has it
NAMES = [
    ("a", None),
    ("...", None),
    ("Az09._-", None),
    ("x" * 249, None),
    ("", "the empty string is not allowed"),
    (".", "'.' is not allowed"),
    ("..", "'..' is not allowed"),
    ("x" * 250, "is longer than the max allowed length 249"),
    ("a b", "contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"),
    ("a\n", "contains one or more characters"),
    ("ä", "contains one or more characters"),
]


@pytest.mark.parametrize(("name", "reason"), NAMES, ids=[row[0][:9] for row in NAMES])
def test_names_that_topics_may_have(name: str, reason: str | None) -> None:
    if reason is None:
        check_topic_name(name)
        return
    with pytest.raises(KafkaError) as refused:
        check_topic_name(name)
    assert refused.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert str(refused.value).startswith("Topic name is invalid: ") and reason in str(refused.value)


def test_dots_and_underscores_are_one_in_names_of_metrics() -> None:
    assert collisions("a.b_c", ["b", "a_b_c", "a.b.c", "a-b-c"]) == ["a.b.c", "a_b_c"]
