"""What a `kwob up` that was killed left in its data folder: processes that run on, and registrations in ZooKeeper.

Whoever holds the folder's lock may end both: nobody else runs a cluster there. Without it a start would meet its own
dead brokers for as long as their sessions last, and its own ports in use.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import subprocess
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from controller.local.cluster_file import ClusterError, ClusterRow, write_cluster
from controller.local.flags import reason
from controller.local.started import Started, read_processes, write_processes
from controller.wire.zk_operations import Delete, GetChildren, GetData, ZkOp
from controller.wire.znode_json import ZnodeError
from controller.wire.znodes import BrokerIdsZNode, BrokerIdZNode, ControllerZNode
from controller.world.ports import ZkSession
from controller.world.real.ports import HOST
from controller.world.real.process_groups import group_ended, is_ending, kill_group, living_members

_END_S: Final = 10.0
#: How long those are waited for that end already, which may be another's.
_ENDING_S: Final = 2.0


@dataclass(slots=True)
class WhatRuns:
    """The files of a data folder that tell what runs. A cluster that is up goes on where they cannot be written."""

    data: Path
    on_note: Callable[[str], None]
    is_up: bool = False
    _is_written: bool = True

    def write(self, row: ClusterRow, started: Mapping[str, Started]) -> None:
        """Raises: OSError, while the cluster starts; later, a note tells once."""
        try:
            write_cluster(self.data, row)
            write_processes(self.data, started)
        except OSError as error:
            if not self.is_up:
                raise
            if self._is_written:
                self.on_note(f"what runs cannot be written down; kwob status tells what ran before: {reason(error)}")
            self._is_written = False
        else:
            self._is_written = True


async def end_processes(data: Path) -> list[str]:
    """Kills what an earlier `kwob up` of this folder left running, each with all of its process group. Returns names
    and process ids, as text, when the last one has ended, and what was ending already, too.

    A group counts as one of them only if its id is not that of a later process, and a command line in it names the
    folder.
    Raises: ClusterError, when one does not end.
    """
    groups = {name: each.pid for name, each in read_processes(data).items() if not each.is_anothers}
    left = {name: group for name, group in groups.items() if _is_of(group, data)}
    ending = [group for group in groups.values() if any(map(is_ending, living_members(group)))]
    ended = await asyncio.gather(*(kill_group(group, _END_S) for group in left.values()))
    await asyncio.gather(*(group_ended(group, _ENDING_S) for group in ending))
    for (name, group), has_ended in zip(left.items(), ended, strict=True):
        if not has_ended:
            raise ClusterError(f"{name} (process {group}) of an earlier kwob up cannot be ended")
    return [f"{name} (process {group})" for name, group in left.items()]


def _is_of(group: int, data: Path) -> bool:
    """Whether one that lives in this process group was started with this folder, not with one whose name goes on, or
    that ends like it."""
    named = re.compile(rf"(?<![^\s=,:]){re.escape(str(data))}(?![^\s/,:])")
    return any(named.search(_command_line(pid)) for pid in living_members(group))


def _command_line(pid: int) -> str:
    """The words of a process, one space between them; empty when it is gone or another user's."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        words = ["ps", "-ww", "-o", "command=", "-p", str(pid)]
        return subprocess.run(words, capture_output=True, text=True, timeout=_END_S, check=False).stdout
    return ""


async def forget_registrations(session: ZkSession, controllers: Collection[int]) -> list[str]:
    """Deletes what dead processes of this folder registered, instead of waiting until their sessions have timed out.

    A broker of this machine is dead when nobody listens on any of its addresses; `controllers` are the ids of this
    folder, none of which runs. Returns the paths deleted. Raises: ZkSessionExpired.
    """
    listed, office = await session.perform([GetChildren(BrokerIdsZNode.path), GetData(ControllerZNode.path)])
    ids = BrokerIdsZNode.ids(listed.children) if listed.ok else []
    found = await session.perform([GetData(BrokerIdZNode.path(broker_id)) for broker_id in ids]) if ids else []
    dead: list[ZkOp] = []
    for broker_id, result in zip(ids, found, strict=True):
        with contextlib.suppress(ZnodeError):
            endpoints = BrokerIdZNode.decode(broker_id, result.data).endpoints if result.ok else ()
            hosts = {endpoint.host for endpoint in endpoints}
            if hosts == {HOST} and not any([await _is_open(endpoint.port) for endpoint in endpoints]):
                dead.append(Delete(BrokerIdZNode.path(broker_id)))
    if office.ok and ControllerZNode.decode(office.data) in controllers:
        dead.append(Delete(ControllerZNode.path))
    done = await session.perform(dead) if dead else []
    return [op.path for op, result in zip(dead, done, strict=True) if isinstance(op, Delete) and result.ok]


async def _is_open(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection(HOST, port)
    except OSError:
        return False
    writer.close()
    return True
