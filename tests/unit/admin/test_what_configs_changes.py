"""What kafka-configs changes, by brokers and by ZooKeeper, and nothing beside; what machines read of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from controller.admin.commands import configs
from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey
from tests.unit.admin.test_older_tools import Stage

LEVELS = {"foo": ["--topic", "foo"], "1": ["--broker", "1"], "": ["--broker-defaults"]}
KINDS = {"foo": (2, "topics"), "1": (4, "brokers"), "": (4, "brokers")}


@pytest.mark.parametrize("by_file", [False, True])
@pytest.mark.parametrize("name", LEVELS)
def test_one_entity_is_changed_in_what_is_named(
    cluster: Any, tool: Any, tmp_path: Path, name: str, by_file: bool
) -> None:
    cluster.topic("foo", (0,))
    _, plural = KINDS[name]
    for level in LEVELS:
        cluster.configs[KINDS[level][0], level] = {"kept": "1", "gone": "2"}
    (tmp_path / "a.properties").write_text("a=1,2\nb=file\n")
    added = ["--add-config-file", str(tmp_path / "a.properties")] if by_file else ["--add-config", "a=[1,2],b=file"]
    outcome = tool(configs, cluster, ["--alter", *LEVELS[name], *added, "--delete-config", "gone", "--json"])
    assert json.loads(outcome.out) == {
        "entity_type": plural,
        "entity_name": name or None,
        "changed": {"a": "1,2", "b": "file", "gone": None},
    }
    for level in LEVELS:
        changed = {"kept": "1", "a": "1,2", "b": "file"}
        assert cluster.configs[KINDS[level][0], level] == (changed if level == name else {"kept": "1", "gone": "2"})


@pytest.mark.parametrize("name", LEVELS)
def test_what_the_cluster_refuses_is_no_success(cluster: Any, tool: Any, name: str) -> None:
    cluster.topic("foo", (0,))
    kind, _ = KINDS[name]
    cluster.answers[ApiKey.INCREMENTAL_ALTER_CONFIGS] = lambda broker, body: {
        "responses": [
            {
                "resource_type": kind,
                "resource_name": name,
                "error_code": ErrorCode.INVALID_CONFIG,
                "error_message": "No",
            }
        ]
    }
    outcome = tool(configs, cluster, ["--alter", *LEVELS[name], "--add-config", "a=1", "--json"])
    assert (outcome.code, json.loads(outcome.out)["error"]) == (1, "No")


def test_a_config_is_not_set_and_deleted_at_once(cluster: Any, tool: Any) -> None:
    cluster.topic("foo", (0,))
    cluster.configs[2, "foo"] = {"retention.ms": "5"}
    words = ["--alter", "--topic", "foo", "--add-config", "retention.ms=7", "--delete-config", "retention.ms"]
    assert tool(configs, cluster, words).code == 1
    assert cluster.configs[2, "foo"] == {"retention.ms": "5"}


#: whose secret is hidden, what is set or deleted now -> whether the tool insists on the secret
HIDDEN = [
    ("1", ["--add-config", "a=1"], True),
    ("1", ["--add-config", "ssl.keystore.password=x"], False),
    ("1", ["--delete-config", "ssl.keystore.password"], False),
    ("1", ["--add-config", "a=1", "--delete-config", "ssl.keystore.password"], False),
    ("", ["--add-config", "a=1"], True),
    ("", ["--delete-config", "ssl.keystore.password"], False),
    ("foo", ["--add-config", "a=1"], False),
]


@pytest.mark.parametrize(("name", "words", "refused"), HIDDEN)
def test_secrets_of_a_broker_are_to_be_given_again_or_deleted(
    cluster: Any, tool: Any, name: str, words: list[str], refused: bool
) -> None:
    """A broker does not show their values, and a change of the others would lose them. Those of another level stay."""
    cluster.topic("foo", (0,))
    source = {"foo": 1, "1": 2, "": 3}[name]

    def shown(_: int, body: Any) -> dict[str, Any]:
        (asked,) = body.resources
        entries = [
            {"name": key, "value": None, "config_source": at, "is_sensitive": True, "synonyms": []}
            for key, at in (("ssl.keystore.password", source), ("ssl.key.password", 4))
        ]
        named = {"resource_type": asked.resource_type, "resource_name": asked.resource_name}
        return {"results": [{**named, "configs": entries}]}

    cluster.answers[ApiKey.DESCRIBE_CONFIGS] = shown
    outcome = tool(configs, cluster, ["--alter", *LEVELS[name], *words])
    assert outcome.code == int(refused)
    assert ("missing entries: Set(ssl.keystore.password)" in outcome.err) == refused
    assert bool(cluster.requests(ApiKey.INCREMENTAL_ALTER_CONFIGS)) != refused


@pytest.mark.parametrize("everything", [False, True])
def test_what_is_described(cluster: Any, tool: Any, everything: bool) -> None:
    """What was set there; with --all what counts, wherever it was set, but of defaults the defaults."""
    cluster.topic("foo", (0,))
    cluster.configs[2, "foo"] = {"retention.ms": "5"}
    cluster.configs[4, "1"] = {"a": "1"}
    cluster.configs[4, ""] = {"b": "2"}

    def names(*words: str) -> Any:
        entities = json.loads(tool(configs, cluster, ["--describe", *words, "--json"]).out)["entities"]
        return {entity["name"]: [config["name"] for config in entity["configs"]] for entity in entities}

    every = ["--all"] if everything else []
    of_foo = ["min.insync.replicas", "retention.ms"] if everything else ["retention.ms"]
    assert names("--topic", "foo", *every) == {"foo": of_foo}
    assert names("--broker", "1", *every) == {"1": ["a"]}
    assert names("--broker-defaults", *every) == {None: ["b"]}
    assert names("--entity-type", "brokers", *every) == {"0": [], "1": ["a"], "2": [], None: ["b"]}
    assert names("--entity-type", "topics", *every) == {"foo": of_foo}


#: words, what stands above the configs, where the one that is set there was set
DESCRIBED = [
    (["--topic", "foo"], "Dynamic configs for topic foo are:", "DYNAMIC_TOPIC_CONFIG"),
    (["--topic", "foo", "--all"], "All configs for topic foo are:", "DYNAMIC_TOPIC_CONFIG"),
    (["--broker", "1"], "Dynamic configs for broker 1 are:", "DYNAMIC_BROKER_CONFIG"),
    (["--broker", "1", "--all"], "All configs for broker 1 are:", "DYNAMIC_BROKER_CONFIG"),
    (["--broker-defaults"], "Default configs for brokers in the cluster are:", "DYNAMIC_DEFAULT_BROKER_CONFIG"),
]


@pytest.mark.parametrize(("words", "heading", "source"), DESCRIBED, ids=[d[1] for d in DESCRIBED])
def test_a_config_is_described_with_all_places_it_is_set_at(
    cluster: Any, tool: Any, words: list[str], heading: str, source: str
) -> None:
    cluster.topic("foo", (0,))
    for level in LEVELS:
        cluster.configs[KINDS[level][0], level] = {"a": "1"}
    shown, read = (tool(configs, cluster, ["--describe", *words, *more]).out for more in ([], ["--json"]))
    assert shown.splitlines()[0] == heading
    assert f"  a=1 sensitive=false synonyms={{{source}:a=1}}" in shown.splitlines()
    assert all(body.include_synonyms for body in cluster.requests(ApiKey.DESCRIBE_CONFIGS))
    [entity] = json.loads(read)["entities"]
    [entry] = [c for c in entity["configs"] if c["name"] == "a"]
    synonyms = [{"source": source, "name": "a", "value": "1"}]
    assert entry == {
        "name": "a", "value": "1", "source": source, "sensitive": False, "read_only": False, "synonyms": synonyms,
    }  # fmt: skip


@pytest.mark.parametrize(("version", "refused"), [("2.6", False), ("3.9", True), ("4.1", True)])
def test_a_key_that_none_can_be_is_left_to_clusters_of_2_x(
    cluster: Any, tool: Any, version: str, refused: bool
) -> None:
    cluster.topic("foo", (0,))
    outcome = tool(configs, cluster, ["--compat", version, "--alter", "--topic", "foo", "--add-config", "a b=1"])
    assert (outcome.code, cluster.configs[2, "foo"]) == ((1, {}) if refused else (0, {"a b": "1"}))


@pytest.mark.parametrize("action", [["--describe"], ["--alter", "--add-config", "flush.ms=1"]])
@pytest.mark.parametrize(("version", "asks"), [("3.9", True), ("4.1", False)])
def test_from_4_0_on_a_topic_name_is_checked_before_the_cluster_is_asked(
    cluster: Any, tool: Any, version: str, asks: bool, action: list[str]
) -> None:
    cluster.topic("foo", (0,))
    outcome = tool(configs, cluster, ["--compat", version, *action, "--topic", "a b"])
    assert outcome.code == 1
    assert bool(cluster.requests(ApiKey.DESCRIBE_CONFIGS)) == asks
    assert not cluster.configs[2, "a b"]
    for words in (["--topic", "foo"], ["--broker", "1"], ["--broker-defaults"]):
        assert tool(configs, cluster, ["--compat", version, *action, *words]).code == 0


# By ZooKeeper.


@pytest.fixture
def stage() -> Stage:
    """Brokers 0 to 2, of which 1 has a rate and a config; 8, which does not run, as well."""
    made = Stage()
    made.topic("foo", (0, 1))
    for name in ("topics/foo", "brokers/1", "brokers/8", "brokers/<default>"):
        kept = {"retention.ms": "5"} if name == "topics/foo" else {"num.io.threads": "4", RATE: "7"}
        made.before[f"/config/{name}"] = {"version": 1, "config": kept}
    return made


RATE = "leader.replication.throttled.rate"
TOPIC = ("--entity-type", "topics", "--entity-name", "foo")
BROKER = ("--entity-type", "brokers", "--entity-name")
DEFAULT = ("--entity-type", "brokers", "--entity-default")
#: entity and its node, configs added, names deleted -> what it then has, or why it stays
BY_ZNODE: list[tuple[tuple[str, ...], str, str, str, Any]] = [
    (TOPIC, "topics/foo", "flush.ms=7", "", {"retention.ms": "5", "flush.ms": "7"}),
    (TOPIC, "topics/foo", "flush.ms=7", "retention.ms", {"flush.ms": "7"}),
    (TOPIC, "topics/foo", "flush.ms=7", "flush.ms", "Invalid config(s): flush.ms"),
    (TOPIC, "topics/foo", "retention.ms=7,flush.ms=7", "retention.ms", {"flush.ms": "7"}),
    ((*BROKER, "1"), "brokers/1", f"{RATE}=0", "", {"num.io.threads": "4", RATE: "0"}),
    ((*BROKER, "1"), "brokers/1", f"{RATE}=-1", "", "Invalid value -1"),
    ((*BROKER, "1"), "brokers/1", f"{RATE}=x", "", "Invalid value x"),
    ((*BROKER, "1"), "brokers/1", "", "num.io.threads", {RATE: "7"}),
    ((*BROKER, "1"), "brokers/1", "", f"{RATE},num.io.threads", {}),
    ((*BROKER, "1"), "brokers/1", f"{RATE}=1,num.io.threads=5", "", "--bootstrap-server option must be specified"),
    ((*BROKER, "8"), "brokers/8", "num.io.threads=5", RATE, {"num.io.threads": "5"}),
    ((*BROKER, "8"), "brokers/8", "num.io.threads=x", "", "Invalid value x"),
    ((*BROKER, "8"), "brokers/8", "of.a.plugin=x", RATE, {"num.io.threads": "4", "of.a.plugin": "x"}),
    (DEFAULT, "brokers/<default>", "num.io.threads=5", "", "--bootstrap-server option must be specified"),
    (DEFAULT, "brokers/<default>", f"{RATE}=5", "num.io.threads", {RATE: "5"}),
]  # fmt: skip


@pytest.mark.parametrize("version", ["2.0", "2.6"])
@pytest.mark.parametrize(("entity", "node", "added", "deleted", "outcome"), BY_ZNODE)
def test_configs_by_znode_change_as_asked_or_not_at_all(
    stage: Stage, version: str, entity: tuple[str, ...], node: str, added: str, deleted: str, outcome: Any
) -> None:
    stage.run("configs", "--zk", "--describe", *TOPIC)
    before = {path: stage.json(path) for path in stage.after if path.startswith("/config/")}
    words = [
        word for name, text in (("add", added), ("delete", deleted)) if text for word in (f"--{name}-config", text)
    ]
    code, out, err = stage.run("configs", "--zk", "--alter", *entity, *words, "--json", compat=version)
    after = {path: stage.json(path) for path in stage.after if path.startswith("/config/")}
    if isinstance(outcome, str):
        assert (code, outcome in json.loads(out)["error"], after) == (1, True, before)
        return
    kind, _, name = node.partition("/")
    assert (code, json.loads(out)) == (0, {"entity_type": kind, "entity_name": name, "configs": outcome}), err
    [notice] = after.keys() - before.keys()
    assert after.pop(notice)["entity_path"] == node
    assert after == {**before, f"/config/{node}": {"version": 1, "config": outcome}}


def test_configs_that_are_fixed_while_a_broker_runs_are_not_looked_at(stage: Stage) -> None:
    stage.before["/config/brokers/1"] = {"version": 1, "config": {"replica.fetch.max.bytes": "x"}}
    assert stage.run("configs", "--zk", "--alter", *BROKER, "1", "--add-config", f"{RATE}=5")[0] == 0
    assert stage.json("/config/brokers/1")["config"] == {"replica.fetch.max.bytes": "x", RATE: "5"}


def test_defaults_are_set_by_znode_where_no_broker_runs(stage: Stage) -> None:
    stage.brokers = {}
    code, _, err = stage.run("configs", "--zk", "--alter", *DEFAULT, "--add-config", "num.io.threads=5")
    assert (code, stage.json("/config/brokers/<default>")["config"]["num.io.threads"]) == (0, "5"), err


def test_what_is_described_by_znode(stage: Stage) -> None:
    def ask(*words: str) -> Any:
        return json.loads(stage.run("configs", "--zk", "--describe", *words, "--json", compat="2.6")[1])

    mine = {"num.io.threads": "4", RATE: "7"}
    assert ask(*TOPIC) == {"entity_type": "topics", "entities": {"foo": {"retention.ms": "5"}}}
    assert ask(*BROKER, "8") == {"entity_type": "brokers", "entities": {"8": mine}}
    assert ask(*BROKER, "2")["entities"] == {"2": {}}
    assert ask("--entity-type", "brokers")["entities"] == dict.fromkeys(("1", "8", "<default>"), mine)
    assert ask("--entity-type", "topics")["entities"] == {"foo": {"retention.ms": "5"}}
