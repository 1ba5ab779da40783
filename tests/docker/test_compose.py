"""docker-compose.yml as a user runs it: one cluster, started once; the tests follow each other.

`make test-docker`. Building the image the first time takes minutes; afterwards the run takes two or three.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.docker.conftest import NODES, SERVICES, container
from tests.docker.life import CLIENT_LIMIT_S, INSIDE, RECORDS, active_controller, consume, partitions, produce

pytestmark = [pytest.mark.docker, pytest.mark.timeout(540)]

TOPIC, PARTITIONS = "orders", 6
#: Six tenths of what it was before it had a stage of its own for building: 1,530 MB.
IMAGE_BYTES_MAX = 918_000_000


def states(cluster: Any) -> dict[str, str]:
    """Health of each node that runs."""
    rows = [json.loads(line) for line in cluster.compose("ps", "--format", "json").splitlines()]
    return {row["Name"]: row["Health"] for row in rows if row["Name"] in NODES}


def test_every_node_is_healthy_once_up_returns(cluster: Any) -> None:
    assert states(cluster) == dict.fromkeys(NODES, "healthy")


def test_the_programs_do_not_run_as_root_and_the_image_is_no_larger_than_it_was(cluster: Any) -> None:
    assert cluster.compose("exec", "-T", "broker", "id", "-u").strip() != "0"
    image = json.loads(cluster.compose("images", "--format", "json", "broker"))[0]
    print(f"the image has {image['Size'] / 1e6:.0f} MB")
    assert image["Size"] <= IMAGE_BYTES_MAX


def test_a_client_on_the_host_creates_a_topic_produces_and_consumes(cluster: Any) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])[TOPIC].result(CLIENT_LIMIT_S)
    produce(cluster, TOPIC, 0)
    assert consume(cluster, TOPIC, "first", RECORDS) == set(range(RECORDS))


def test_clients_on_the_host_and_in_the_network_are_each_told_addresses_that_they_reach(cluster: Any) -> None:
    brokers = AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics(timeout=CLIENT_LIMIT_S).brokers
    outside = {f"{broker.id} {broker.host}:{broker.port}" for broker in brokers.values()}
    assert {f"{n} localhost:{19090 + n}" for n in (1, 2, 3)} <= outside
    assert all(" localhost:" in address for address in outside), "the controller's, too"

    words = ["run", "--rm", "-T", "--entrypoint", "python", "tools", "-c", INSIDE]
    said = cluster.compose(*words, cluster.internal, TOPIC, str(RECORDS), str(RECORDS + 1))
    inside = json.loads(said.splitlines()[-1])
    assert {f"{n} {container('broker', n)}:9092" for n in (1, 2, 3)} <= set(inside["told"])
    assert not any("localhost" in address for address in inside["told"])
    assert set(map(int, inside["found"])) == set(range(RECORDS + 1))


def test_the_tools_service_sees_the_same_cluster(cluster: Any) -> None:
    said = cluster.compose(
        "run", "--rm", "-T", "tools", "topics", "--bootstrap-server", cluster.internal, "--describe", "--topic", TOPIC
    )
    assert f"PartitionCount: {PARTITIONS}\tReplicationFactor: 3" in said


def test_leaders_leave_a_killed_broker_and_it_comes_back(cluster: Any) -> None:
    assert any(partition.leader == 2 for partition in partitions(cluster, TOPIC)), (
        "otherwise killing it would move nothing"
    )
    cluster.broker("kill", 2)
    # The controller tells of new leaders first, of the ISRs of other partitions after that.
    cluster.eventually("no leader on broker 2", lambda: all(p.leader in (1, 3) for p in partitions(cluster, TOPIC)))
    cluster.eventually("broker 2 in no ISR", lambda: all(2 not in p.isrs for p in partitions(cluster, TOPIC)))
    there = f"{container('broker', 2)}:9092"
    checked = cluster.try_compose("exec", "-T", "broker", "kwob", "health", there, "--id", "2")
    assert checked.returncode == 1 and f"{there} is not healthy: " in checked.stderr

    produce(cluster, TOPIC, RECORDS)
    cluster.broker("start", 2)
    cluster.eventually("every ISR is full", lambda: all(len(p.isrs) == 3 for p in partitions(cluster, TOPIC)))
    cluster.eventually("all are healthy", lambda: states(cluster) == dict.fromkeys(NODES, "healthy"))
    assert consume(cluster, TOPIC, "second", 2 * RECORDS) == set(range(2 * RECORDS))


def test_the_other_controller_takes_over_from_a_stopped_one(cluster: Any) -> None:
    before = active_controller(cluster)
    assert before in (901, 902)
    cluster.compose("stop", f"controller-{before}")
    cluster.eventually("another controller", lambda: active_controller(cluster) == 1803 - before)
    cluster.compose("up", "--no-build", "--wait", f"controller-{before}")


def test_after_a_power_cut_everything_comes_back_with_what_it_had(cluster: Any) -> None:
    produce(cluster, TOPIC, 2 * RECORDS)
    cluster.compose("kill", *SERVICES)
    assert states(cluster) == {}, "nothing runs, and ZooKeeper still has the sessions of all"
    cluster.compose("up", "--no-build", "--wait")
    assert states(cluster) == dict.fromkeys(NODES, "healthy")
    cluster.eventually("every ISR is full", lambda: all(len(p.isrs) == 3 for p in partitions(cluster, TOPIC)))
    assert active_controller(cluster) in (901, 902)
    assert consume(cluster, TOPIC, "third", 3 * RECORDS) == set(range(3 * RECORDS)), "all that was acknowledged"
    produce(cluster, TOPIC, 3 * RECORDS)


def test_the_replay_profile_derives_the_shrink_and_the_expand(cluster: Any, tmp_path: Path) -> None:
    cluster.compose("run", "--rm", "-T", "replay")
    cluster.compose("cp", "broker:/data/replay", str(tmp_path))
    assert "<html" in (tmp_path / "replay" / "report.html").read_text(encoding="utf-8")[:1000].lower()
    history = pandas.read_parquet(tmp_path / "replay" / "isr_history")
    ours = history[history["topic"] == TOPIC]
    without = {partition for partition, isr in zip(ours["partition"], ours["isr"], strict=True) if 2 not in isr}
    back = ours[(ours["event"] == "isr_expand") & (ours["source"] == "replayed")]
    assert without == set(range(PARTITIONS)), "the controller took the killed broker out of every ISR"
    assert set(back["partition"]) == set(range(PARTITIONS)), "the leaders took it back"
