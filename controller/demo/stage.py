"""What every act works with: the cluster, the load, ZooKeeper's word, Kafka's tools, the screen."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from controller.admin.checks.truth import EpochHistory, Truth, read_truth
from controller.demo.screen import Screen
from controller.demo.workload import Workload
from controller.local.cluster import Cluster
from controller.local.processes import die_with_parent
from controller.wire.zk_operations import ZkRefused
from controller.wire.znodes import ZnodeError
from controller.world.ports import ZkSession

_LOOK_S: Final = 0.1
_HISTORY_S: Final = 0.5
_TOOL_S: Final = 60.0


class ActFailed(Exception):
    """Something that must happen did not. The message is one line."""


@dataclass(slots=True, kw_only=True)
class Stage:
    """The state of a running demo. `out` is its folder, `seed` feeds every choice it makes."""

    cluster: Cluster
    zk: ZkSession
    workload: Workload
    screen: Screen
    out: Path
    seed: int
    history: EpochHistory = field(default_factory=EpochHistory)
    controller_epoch_at_start: int = 0

    @property
    def bootstrap(self) -> str:
        """All brokers, as clients take them."""
        return self.cluster.plan.bootstrap

    async def look(self) -> Truth:
        """ZooKeeper's word, now."""
        truth = await read_truth(self.zk)
        self.history.note(truth)
        return truth

    async def keep_history(self) -> None:
        """Looks again and again, until cancelled: a fall of an epoch between two acts would be seen."""
        while True:
            await self.look()
            await asyncio.sleep(_HISTORY_S)

    async def until(self, what: str, holds: Callable[[Truth], bool], *, timeout_s: float) -> Truth:
        """Looks until `holds`; shows `what` meanwhile. Returns the look that held. Raises: ActFailed."""
        self.screen.note(f"waiting until {what}")
        limit = time.monotonic() + timeout_s
        while time.monotonic() < limit:
            self.check_alive()
            try:
                truth = await self.look()
            except (ZnodeError, ZkRefused) as error:
                raise ActFailed(str(error)) from error
            if holds(truth):
                return truth
            await asyncio.sleep(_LOOK_S)
        raise ActFailed(f"waited {timeout_s:g} s until {what}; see {self.cluster.plan.data / 'logs'}")

    def check_alive(self) -> None:
        """Raises: ActFailed, when the load's own threads died."""
        if self.workload.crash is not None:
            raise ActFailed(f"the client library gave up: {self.workload.crash}")

    async def tool(self, *words: str) -> str:
        """Runs a `kwob` tool as a user would; its words are kept in `logs/tools.log`.

        Returns: its standard output. Raises: ActFailed, unless its exit code is 0.
        """
        command = ["kwob", words[0], "--bootstrap-server", self.bootstrap, *words[1:]]
        self.screen.note(" ".join(command[:2] + list(words[1:])))
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "controller.cli", *command[1:],
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            start_new_session=True, preexec_fn=die_with_parent(), cwd=self.out,
            env={**os.environ, "KWOB_DATA": str(self.cluster.plan.data)},
        )  # fmt: skip
        try:
            async with asyncio.timeout(_TOOL_S):
                out, err = (part.decode("utf-8", "replace") for part in await process.communicate())
        except TimeoutError:
            raise ActFailed(f"{' '.join(command[:2])} took longer than {_TOOL_S:g} s") from None
        finally:
            if process.returncode is None:
                process.kill()
        self._keep(command, out + err)
        if process.returncode != 0:
            lines = [line for line in (out + err).splitlines() if line.strip()]
            raise ActFailed(f"{' '.join(command[:2])} failed: {lines[-1] if lines else 'without a word'}")
        return out

    def _keep(self, command: Sequence[str], text: str) -> None:
        with (self.cluster.plan.data / "logs" / "tools.log").open("a", encoding="utf-8") as log:
            log.write(f"$ {' '.join(command)}\n{text}\n")
