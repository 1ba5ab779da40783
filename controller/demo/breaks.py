"""Acts 3, 4 and 6: what goes wrong in a cluster, and how it heals."""

from __future__ import annotations

import time
from typing import Final

from controller.demo.stage import ActFailed, Stage
from controller.local.fault_file import write_faults
from controller.wire.fault_rows import PauseReplication
from controller.wire.types import BrokerId

LAG_TIME_MAX_MS: Final = 4_000
SESSION_TIMEOUT_MS: Final = 4_000
PAUSED: Final = BrokerId(2)
KILLED: Final = BrokerId(3)
_HEAL_S: Final = 30.0


async def pause_replication(stage: Stage) -> str:
    """Act 3. One broker's followers stop fetching for longer than `replica.lag.time.max.ms`."""
    before = await stage.look()
    followed = [
        tp
        for tp, partition in before.of(_loaded(stage)).items()
        if PAUSED in partition.assignment.replicas and partition.leader != PAUSED
    ]
    began = time.monotonic()
    write_faults(stage.cluster.plan.fault_file, [PauseReplication(broker=PAUSED)])
    try:
        await stage.until(
            f"broker {PAUSED} is out of the ISR of {len(followed)} partitions",
            lambda truth: all(PAUSED not in truth.partitions[tp].isr for tp in followed),
            timeout_s=_HEAL_S,
        )
    finally:
        write_faults(stage.cluster.plan.fault_file, [])
    shrunk_s = time.monotonic() - began
    await stage.until(f"broker {PAUSED} is back", lambda truth: not truth.not_whole(), timeout_s=_HEAL_S)
    back_s = time.monotonic() - began - shrunk_s
    return (
        f"broker {PAUSED} fetched nothing for {shrunk_s:.1f} s (limit {LAG_TIME_MAX_MS / 1000:g} s): it left the ISR "
        f"of all {len(followed)} partitions it follows, and was back in all {back_s:.1f} s after it went on"
    )


async def kill_broker(stage: Stage) -> str:
    """Act 4. SIGKILL: leaders move. Started again: it catches up and rejoins."""
    before = await stage.look()
    led = [tp for tp, partition in before.partitions.items() if partition.leader == KILLED]
    began = time.monotonic()
    await stage.cluster.kill_broker(KILLED)
    await stage.until(
        f"the {len(led)} partitions of broker {KILLED} have other leaders",
        lambda truth: (
            KILLED not in truth.brokers and all(truth.partitions[tp].leader not in (None, KILLED) for tp in led)
        ),
        timeout_s=_HEAL_S,
    )
    moved_s = time.monotonic() - began
    stage.screen.note(f"starting broker {KILLED} again")
    again = time.monotonic()
    await stage.cluster.start_broker(KILLED)
    await stage.until(f"broker {KILLED} is in every ISR again", lambda truth: not truth.not_whole(), timeout_s=_HEAL_S)
    session_s = SESSION_TIMEOUT_MS / 1000
    return (
        f"broker {KILLED} by SIGKILL: {len(led)} leaders moved after {moved_s:.1f} s (session {session_s:g} s); "
        f"started again, it was in every ISR after {time.monotonic() - again:.1f} s"
    )


async def kill_controller(stage: Stage) -> str:
    """Act 6. The active controller dies; the other one takes over with a higher epoch."""
    before = await stage.look()
    if before.controller is None:
        raise ActFailed("no controller is active")
    killed = before.controller
    began = time.monotonic()
    await stage.cluster.kill_controller(killed)
    after = await stage.until(
        "another controller is active",
        lambda truth: truth.controller not in (None, killed) and truth.controller_epoch > before.controller_epoch,
        timeout_s=_HEAL_S,
    )
    return (
        f"controller {killed} by SIGKILL: controller {after.controller} took over after "
        f"{time.monotonic() - began:.1f} s, epoch {before.controller_epoch} -> {after.controller_epoch}"
    )


def _loaded(stage: Stage) -> frozenset[str]:
    return frozenset(tp.topic for tp in stage.workload.acknowledged)
