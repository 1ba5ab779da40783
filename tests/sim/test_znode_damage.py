"""Whatever becomes of a znode that a broker or a controller reads, while clients write with acks=all and brokers and
controllers come and go: nobody stops serving, the office is kept (or won again, where it is the office's own znode),
what is sound goes on, and after a repair the cluster is whole and no acknowledged record is lost.

A few examples in the plain run, the same each time; many fresh ones by name: `pytest -m slow
tests/sim/test_znode_damage.py`.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.world.simulated.world import World, run_world
from tests.sim.damaged import (
    ABSENT,
    PRESENT,
    SOUND,
    SOUND_S,
    STATE,
    STIRS,
    DamagedCluster,
    fail_over,
    is_believable,
)
from tests.worlds.damage import LISTS, OFFICE, Damage, damages
from tests.worlds.fuzz import few, many, takes_long

pytestmark = pytest.mark.sim

FEW = few(10)
MANY = many(1_000)
PATHS = st.sampled_from(sorted({*PRESENT, *ABSENT}))
#: Virtual seconds for which the damage lasts.
LASTS = st.sampled_from([1, 10, 60])
#: A state that nobody can tell from a true one is believed, so its ISR must be what it says.
ISR_CHANGES = ("bounce", "move")


@st.composite
def drawn(draw: Any, cluster: DamagedCluster, path: str) -> Damage:
    sound = cluster.content(path)
    if draw(st.integers(0, 9)) == 0:
        return Damage(path, "touched")
    found: Damage = draw(damages({path: sound or None}))
    return found


async def course(cluster: DamagedCluster, damage: Damage, stirs: list[str], lasts_s: int) -> None:
    epoch = int(cluster.content("/controller_epoch") or b"0")
    await cluster.inflict(damage)
    for stir in stirs:
        await STIRS[stir](cluster)
    await cluster.world.sleep(lasts_s)
    if damage.path not in (*OFFICE, *LISTS):
        await cluster.grows((SOUND, 0), within_s=SOUND_S)
        assert int(cluster.content("/controller_epoch") or b"0") <= epoch + stirs.count("fail_over"), (
            "the office was lost"
        )
    await cluster.everybody_answers(but=cluster.restarted)
    await cluster.repair(damage)
    if not damage.path.startswith(("/brokers/topics/", "/admin/")) or damage.how == "refused":
        await cluster.ends_well()
    await fail_over(cluster)
    await cluster.ends_well()
    await cluster.everything_is_there()
    if damage.path not in (*OFFICE, *LISTS):
        assert not cluster.harm()


def play(path: str, stirs: list[str], lasts_s: int, seed: int, source: Any) -> None:
    """`source` is a Damage, or hypothesis' data from which one is drawn."""

    async def run(world: World) -> None:
        cluster = DamagedCluster(world, Path(made))
        with cluster.logging():
            try:
                await cluster.begin()
                damage = source if isinstance(source, Damage) else source.draw(drawn(cluster, path), label="damage")
                played = [stir for stir in stirs if not is_believable(damage) or stir not in ISR_CHANGES]
                await course(cluster, damage, played, lasts_s)
            finally:
                for number in (*cluster.brokers, *cluster.controllers):
                    cluster.kill(number)

    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as made:
        run_world(seed, run)


STIR_LISTS = st.lists(st.sampled_from(sorted(STIRS)), min_size=1, max_size=2)


@FEW
@given(PATHS, STIR_LISTS, LASTS, st.integers(0, 999), st.data())
def test_znodes(path: str, stirs: list[str], lasts_s: int, seed: int, data: Any) -> None:
    play(path, stirs, lasts_s, seed, data)


@takes_long
@MANY
@given(PATHS, STIR_LISTS, LASTS, st.integers(0, 999), st.data())
def test_znodes_for_long(path: str, stirs: list[str], lasts_s: int, seed: int, data: Any) -> None:
    play(path, stirs, lasts_s, seed, data)


@pytest.mark.parametrize("stir", sorted(STIRS))
def test_a_state_that_is_no_json(stir: str) -> None:
    play(STATE, [stir], 60, 5, Damage(STATE, "bytes", b"{"))
