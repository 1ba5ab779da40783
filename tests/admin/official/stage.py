"""A cluster that scenarios are played on, whatever it is made of: what is asked of it, by the protocol and ZooKeeper.

Three are made of it: Kafka's brokers under Kafka's controller, and `kwob` as processes or on virtual time.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from controller.wire.protocol import ApiKey
from controller.wire.records import build_values
from controller.wire.types import NO_LEADER
from controller.wire.zk_operations import Create, Delete, GetChildren, GetData, SetData, ZkCode
from controller.world.client import BrokerConnection
from controller.world.ports import Network, ZkSession

BROKERS: Final = (1, 2, 3)
RACKS: Final[Mapping[str, Mapping[int, str]]] = {"plain": {}, "half-racked": {1: "a", 2: "b"}, "fresh": {}}
#: A controller does not place a topic that a broker asks for when only some brokers have racks; and where brokers die,
#: it would matter where that topic is.
WITHOUT_GROUPS: Final = ("half-racked", "fresh")
#: How long a cluster may take to settle.
SETTLE_LIMIT_S: Final = 60.0
#: So that a throttled move lasts: one batch per fetch.
SETTINGS: Final = {
    "offsets.topic.num.partitions": "2",
    "offsets.topic.replication.factor": "1",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
    "auto.leader.rebalance.enable": "false",
    "replica.fetch.max.bytes": "1024",
    "replica.lag.time.max.ms": "10000",
    "zookeeper.session.timeout.ms": "6000",
    "log.segment.delete.delay.ms": "500",
    "controlled.shutdown.retry.backoff.ms": "500",
}

#: The controller answers for topics' configs, too, and so has the brokers' file.
CONTROLLER_SETTINGS: Final = SETTINGS


class Programs(Protocol):
    """The processes of a cluster."""

    async def kill(self, broker: int) -> None: ...

    async def start(self, broker: int) -> None: ...


class Stage:
    """One cluster. `addresses` are all brokers', `data` holds `broker-N/logs` and `broker-N/more`."""

    def __init__(
        self,
        network: Network,
        zk: ZkSession,
        programs: Programs,
        addresses: Mapping[int, tuple[str, int]],
        *,
        data: Path,
        files: Path,
        zookeeper: str = "",
        extra_names: Mapping[str, str] | None = None,
    ) -> None:
        self.network, self.zk, self.programs = network, zk, programs
        self.addresses, self.data, self.files, self.zookeeper = addresses, data, files, zookeeper
        self.down: set[int] = set()
        self.members: dict[str, list[BrokerConnection]] = defaultdict(list)
        self._extra_names = dict(extra_names or {})

    # -- names -----------------------------------------------------------------------------------------------------

    @property
    def bootstrap(self) -> str:
        """The brokers that run."""
        return ",".join(f"{h}:{p}" for b, (h, p) in sorted(self.addresses.items()) if b not in self.down)

    @property
    def names(self) -> dict[str, str]:
        """What of this cluster is another in each."""
        found = {str(self.files): "<files>", str(self.data): "<data>", **self._extra_names}
        return (
            found
            | {f"{h}:{p}": f"<broker {b}>" for b, (h, p) in self.addresses.items()}
            | {self.bootstrap: "<bootstrap>"}
        )

    def log_dir(self, broker: int, name: str) -> str:
        return str(self.data / f"broker-{broker}" / name)

    # -- ZooKeeper -------------------------------------------------------------------------------------------------

    async def read(self, path: str) -> Any:
        """The JSON of a znode; None where there is none or it is empty."""
        [found] = await self.zk.perform([GetData(path)])
        return json.loads(found.data) if found.ok and found.data else None

    async def children(self, path: str) -> list[str]:
        [found] = await self.zk.perform([GetChildren(path)])
        return sorted(found.children) if found.ok else []

    async def write(self, path: str, text: str | None) -> None:
        """Creates, sets or (None) deletes a znode."""
        if text is None:
            await self.zk.perform([Delete(path)])
            return
        [made] = await self.zk.perform([Create(path, text.encode())])
        if made.code is ZkCode.NODE_EXISTS:
            await self.zk.perform([SetData(path, text.encode())])

    async def znodes(self) -> dict[str, Any]:
        """What the tools change: assignments, configs that are set, and what waits under /admin."""
        found: dict[str, Any] = {}
        for kind in ("topics", "brokers"):
            for name in await self.children(f"/config/{kind}"):
                value = await self.read(f"/config/{kind}/{name}")
                if not name.startswith("__") and (kind == "topics" or (value or {}).get("config")):
                    found[f"/config/{kind}/{name}"] = value
        for topic in await self.children("/brokers/topics"):
            if not topic.startswith("__"):
                found[f"/brokers/topics/{topic}"] = await self.read(f"/brokers/topics/{topic}")
        for path in ("/admin/reassign_partitions", "/admin/preferred_replica_election"):
            if (value := await self.read(path)) is not None:
                found[path] = value
        for topic in await self.children("/admin/delete_topics"):
            found[f"/admin/delete_topics/{topic}"] = None
        return found

    # -- waiting ---------------------------------------------------------------------------------------------------

    async def until(self, what: str, holds: Any, limit_s: float = SETTLE_LIMIT_S) -> None:
        loop = asyncio.get_running_loop()
        give_up = loop.time() + limit_s
        while not await holds():
            if loop.time() > give_up:
                raise AssertionError(f"not within {limit_s:g} s: {what}")
            await asyncio.sleep(0.05)

    async def caught_up(self) -> None:
        """Until every broker knows what was answered before: with ZooKeeper they ask it, so that they do."""

    async def settle(self, *, moving: bool = False) -> None:
        """Until replicas that live are in sync, nothing is deleted or (unless `moving`) moved, not even between log
        directories, and brokers know it."""
        seen: dict[str, Any] = {}

        async def settled() -> bool:
            seen.clear()
            seen.update(await self._states())
            if not moving and (any(s["unsettled"] for s in seen.values()) or await self._deleting()):
                return False
            live = sorted(set(self.addresses) - self.down)
            if not all([await self._knows(broker, seen) for broker in live]):
                return False
            return moving or all([await self._is_in_place(broker) for broker in live])

        try:
            await self.until("the cluster settles", settled)
        except AssertionError as error:
            raise AssertionError(f"{error}: {seen}, deleting {await self._deleting()}") from None

    async def _deleting(self) -> list[str]:
        marked = await self.children("/admin/delete_topics")
        return marked if not self.down else []

    async def _states(self) -> dict[str, dict[str, Any]]:
        found = {}
        for topic in await self.children("/brokers/topics"):
            node = await self.read(f"/brokers/topics/{topic}") or {}
            moving = bool(node.get("adding_replicas") or node.get("removing_replicas"))
            for number, replicas in node.get("partitions", {}).items():
                state = await self.read(f"/brokers/topics/{topic}/partitions/{number}/state")
                live = [r for r in replicas if r in self.addresses and r not in self.down]
                #: A controller that comes into office takes dead leaders away first, and elects new ones afterwards.
                electable = state is not None and state["leader"] == NO_LEADER and set(live) & set(state["isr"])
                ill = state is None or set(live) - set(state["isr"]) or state["leader"] in self.down or electable
                unsettled = moving or bool(ill and live)
                found[f"{topic}-{number}"] = {"state": state, "replicas": replicas, "unsettled": unsettled}
        return found

    async def _knows(self, broker: int, states: Mapping[str, Any]) -> bool:
        """Whether the broker's metadata is what ZooKeeper says."""
        try:
            answer = await self.call(broker, ApiKey.METADATA, 5, {"topics": None, "allow_auto_topic_creation": False})
        except OSError:
            return False
        told = {
            f"{t.name}-{p.partition_index}": (p.leader_id, sorted(p.isr_nodes), list(p.replica_nodes))
            for t in answer.topics
            for p in t.partitions
        }
        true = {
            name: (s["state"]["leader"], sorted(s["state"]["isr"]), s["replicas"])
            for name, s in states.items()
            if s["state"] is not None
        }
        nodes = {b.node_id for b in answer.brokers} & set(self.addresses)
        return told == true and nodes == set(self.addresses) - self.down

    async def _is_in_place(self, broker: int) -> bool:
        """Whether no replica of the broker is on its way to another log directory."""
        try:
            answer = await self.call(broker, ApiKey.DESCRIBE_LOG_DIRS, 1, {"topics": None})
        except OSError:
            return False
        return not any(p.is_future_key for d in answer.results for t in d.topics for p in t.partitions)

    async def configured(self, name: str, value: str) -> None:
        """Until every broker runs with this dynamic config of its own."""

        async def applied() -> bool:
            for broker in set(self.addresses) - self.down:
                resource = {"resource_type": 4, "resource_name": str(broker), "configuration_keys": [name]}
                answer = await self.call(broker, ApiKey.DESCRIBE_CONFIGS, 1, {"resources": [resource]})
                if [c.value for r in answer.results for c in r.configs] != [value]:
                    return False
            return True

        await self.until(f"{name}={value} on all brokers", applied)

    async def hidden(self, topic: str) -> None:
        """Until no broker lists the topic, though ZooKeeper may."""

        async def unlisted() -> bool:
            body = {"topics": None, "allow_auto_topic_creation": False}
            answers = [await self.call(b, ApiKey.METADATA, 5, body) for b in set(self.addresses) - self.down]
            return all(t.name != topic for answer in answers for t in answer.topics)

        await self.until(f"nobody lists {topic}", unlisted)

    # -- clients ---------------------------------------------------------------------------------------------------

    async def call(self, broker: int, api_key: ApiKey, version: int, body: Mapping[str, Any]) -> Any:
        """One request on a connection of its own. Raises OSError."""
        connection = await self.open(broker, "scenario")
        try:
            return await connection.call(api_key, version, body)
        finally:
            connection.close()

    async def open(self, broker: int, client_id: str) -> BrokerConnection:
        host, port = self.addresses[broker]
        return await BrokerConnection.open(self.network, host, port, client_id=client_id, timeout_s=10)

    async def produce(self, topic: str, partition: int, batches: int, timestamp: int, size: int = 5000) -> None:
        """So many batches of one record, a second apart; all in-sync replicas have them then."""
        state = await self.read(f"/brokers/topics/{topic}/partitions/{partition}/state")
        connection = await self.open(state["leader"], "scenario")
        try:
            for number in range(batches):
                records = build_values([(None, b"x" * size)], timestamp=timestamp + 1000 * number)
                rows = [{"name": topic, "partition_data": [{"index": partition, "records": records}]}]
                acks = -1 if number == batches - 1 else 1
                answer = await connection.call(ApiKey.PRODUCE, 8, {"acks": acks, "timeout": 10_000, "topic_data": rows})
                assert answer.responses[0].partition_responses[0].error_code == 0, answer
        finally:
            connection.close()

    async def coordinator(self, group: str) -> int:
        found: list[int] = []

        async def known() -> bool:
            live = min(set(self.addresses) - self.down)
            answer = await self.call(live, ApiKey.FIND_COORDINATOR, 3, {"key": group, "key_type": 0})
            found[:] = [answer.node_id]
            return bool(answer.error_code == 0)

        await self.until(f"a coordinator for {group}", known)
        return found[0]

    async def commit(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Commits offsets as a consumer without a group does."""
        broker = await self.coordinator(group)
        partitions = [
            {"partition_index": n, "committed_offset": o, "committed_leader_epoch": -1, "committed_metadata": ""}
            for n, o in offsets.items()
        ]
        body = {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}
        body["topics"] = [{"name": topic, "partitions": partitions}]

        async def committed() -> bool:
            answer = await self.call(broker, ApiKey.OFFSET_COMMIT, 7, body)
            return all(p.error_code == 0 for t in answer.topics for p in t.partitions)

        await self.until(f"{group} commits", committed)

    async def join(self, group: str, client_id: str, topic: str, partitions: Sequence[int]) -> None:
        """A consumer that stays in the group with these partitions, alone in it."""
        broker = await self.coordinator(group)
        connection = await self.open(broker, client_id)
        self.members[group].append(connection)
        name = topic.encode()
        text = len(name).to_bytes(2, "big") + name
        subscription = b"\0\0" + (1).to_bytes(4, "big") + text + b"\xff\xff\xff\xff"
        assignment = b"\0\0" + (1).to_bytes(4, "big") + text + len(partitions).to_bytes(4, "big")
        assignment += b"".join(p.to_bytes(4, "big") for p in partitions) + b"\xff\xff\xff\xff"
        body: dict[str, Any] = {
            "group_id": group, "session_timeout": 1_700_000, "rebalance_timeout": 60_000, "member_id": "",
            "protocol_type": "consumer", "protocols": [{"name": "range", "metadata": subscription}],
        }  # fmt: skip
        joined = await connection.call(ApiKey.JOIN_GROUP, 3, body)
        assert joined.error_code == 0, joined
        await connection.call(
            ApiKey.SYNC_GROUP,
            2,
            {
                "group_id": group,
                "generation_id": joined.generation_id,
                "member_id": joined.member_id,
                "assignments": [{"member_id": joined.member_id, "assignment": assignment}],
            },
        )
        connection.joined = joined.member_id  # type: ignore[attr-defined]

    async def leave(self, group: str) -> None:
        """All members leave."""
        for connection in self.members.pop(group, []):
            member_id = connection.joined  # type: ignore[attr-defined]
            await connection.call(ApiKey.LEAVE_GROUP, 2, {"group_id": group, "member_id": member_id})
            connection.close()

    async def kill(self, broker: int) -> None:
        """SIGKILL, and ZooKeeper has noticed."""
        await self.programs.kill(broker)
        self.down.add(broker)

        async def forgotten() -> bool:
            return str(broker) not in await self.children("/brokers/ids")

        await self.until(f"broker {broker} is forgotten", forgotten)

    async def start(self, broker: int) -> None:
        await self.programs.start(broker)
        self.down.discard(broker)

        async def registered() -> bool:
            return str(broker) in await self.children("/brokers/ids")

        await self.until(f"broker {broker} is registered", registered)

    async def open_curtain(self, *, groups: bool) -> None:
        """All brokers are there, and the groups' own topic."""
        await self.settle()
        if not groups:
            return
        await self.coordinator("warm-up")
        await self.settle()

    # -- back to the beginning -------------------------------------------------------------------------------------

    async def clear_groups(self) -> None:
        """All brokers start that are down, and all groups go."""
        for broker in sorted(self.down):
            await self.start(broker)
        for group in list(self.members):
            await self.leave(group)
        for broker in self.addresses:
            listed = await self.call(broker, ApiKey.LIST_GROUPS, 2, {})
            if groups := [g.group_id for g in listed.groups]:
                await self.call(broker, ApiKey.DELETE_GROUPS, 1, {"groups_names": groups})

    async def clear(self) -> None:
        """Topics, groups and dynamic configs go; brokers that are down start. The groups' own topic stays."""
        await self.clear_groups()
        await self.write("/admin/reassign_partitions", None)
        for topic in await self.children("/brokers/topics"):
            if not topic.startswith("__"):
                await self.write(f"/admin/delete_topics/{topic}", "")
        await self.settle()
        for kind in ("brokers", "topics"):
            for name in await self.children(f"/config/{kind}"):
                if kind == "brokers" and (await self.read(f"/config/brokers/{name}") or {}).get("config"):
                    await self.write(f"/config/brokers/{name}", '{"version":1,"config":{}}')
                    change = json.dumps({"version": 2, "entity_path": f"brokers/{name}"}).encode()
                    await self.zk.perform([Create("/config/changes/config_change_", change, sequence=True)])
                elif kind == "topics" and not name.startswith("__"):
                    await self.write(f"/config/topics/{name}", None)
