"""What worlds may have besides since they were first drawn: each from streams of its own, so that a seed in which
nothing of it is on draws the world that it always drew, and others have theirs with more in it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Final

from controller.sim.shape import Shape
from controller.sim.steps.aftermath import AFTERMATH
from controller.sim.steps.combined import COMBINED
from controller.sim.steps.corners import CORNERS
from controller.sim.steps.foreign import FOREIGN
from controller.sim.steps.held import HELD
from controller.sim.steps.in_vain import IN_VAIN
from controller.sim.steps.log_troubles import LOG_TROUBLES
from controller.sim.steps.moments import CALM, CALM_S, MOMENTS
from controller.sim.steps.operations import OPERATIONS
from controller.sim.steps.resettled import RESETTLED
from controller.sim.steps.ruins import RUINED
from controller.sim.steps.second_terms import SECOND_TERMS
from controller.sim.steps.seldom import SELDOM
from controller.sim.steps.slow_disks import SLOW
from controller.sim.steps.small_print import SMALL_PRINT
from controller.sim.steps.tooled import TOOLS
from controller.sim.steps.twists import TWISTS
from controller.sim.steps.unheard import UNHEARD
from controller.sim.steps.winding import WINDING

#: All kinds of steps that are drawn here.
LATE: Final = {
    **dict(**LOG_TROUBLES, **WINDING, **TOOLS, **FOREIGN, **MOMENTS, **TWISTS),
    **dict(**CALM, **RUINED, **HELD, **UNHEARD, **IN_VAIN, **AFTERMATH, **CORNERS),
    **dict(**SLOW, **RESETTLED, **SELDOM, **SMALL_PRINT, **SECOND_TERMS),
}
#: Seconds before such a step.
WAITS_S: Final = (0.2, 0.5, 1.0, 2.0, 4.0)
#: Of all worlds, the share in which a kind of winding way, or the tool that moves replicas, is on.
WINDING_SHARE: Final = 0.4
#: Of the worlds in which that tool runs, the shares whose replicas fetch little at a time, so that a throttle tells,
#: and whose brokers have two log dirs.
TOOLED_SLOWLY, TOOLED_DIRS = 0.6, 0.3
SMALL_FETCH: Final = 300
#: How many steps of what others damage, and of moments that are hard to hit, a world gets.
DAMAGES: Final = (0, 0, 1, 2, 3)
#: The share of worlds with twists: an office or a move that goes wrong at one given step.
TWISTED: Final = 0.3
#: The share of worlds in which all faults end before the late steps at the end, most of which need a sound cluster.
CALMED: Final = 0.6
#: The share of worlds whose brokers start with files that are lost, torn or of yesterday, or go apart.
RUINED_SHARE: Final = 0.35
#: The share of worlds in which something is held back until what it belongs to is over; narrow ones have it at their
#: end, too.
HOLDING: Final = 0.25
#: The share of worlds in which leaders hear late who their replicas are.
UNHEARD_SHARE: Final = 0.15
#: The share of worlds in which moves and deletions are held up, and leaders that are to leave.
IN_VAIN_SHARE: Final = 0.1
#: The share of worlds in which, last of all, brokers go on with what they had before.
RETURNING: Final = 0.2
#: The share of worlds in which a move or a deletion meets what hardly ever comes together.
CORNERED: Final = 0.15
#: The share of worlds in which, last of all, disks are slow.
SLOWED: Final = 0.1
#: The share of worlds in which, last of all, brokers start again with other settings of their own.
RESET: Final = 0.08
#: The share of worlds in which something comes at a moment in which it seldom does.
SELDOM_SHARE: Final = 0.1
#: The share of worlds in which, last of all, brokers are held to the small print.
HELD_TO_IT: Final = 0.1
#: The share of worlds in which, last of all, a controller serves again after another.
AGAIN: Final = 0.12
#: The share of worlds whose controllers wait 2 s for the answer to a request, not 30.
IMPATIENT: Final = 0.2
#: The share of worlds whose brokers have little memory for requests, and how much: what is not given back is missed.
SHORT_OF_MEMORY, REQUEST_MEMORY = 0.2, 20_000
#: The shares of worlds whose first broker is 0, which a careless hand takes for nobody, and whose clients have a
#: listener of their own.
FROM_ZERO, CLIENTS_APART = 0.12, 0.25
#: Steps that do nothing where brokers have one log dir.
NEED_DIRS: Final = frozenset({"move_dirs_in_trouble", "move_off_a_failed_dir", "die_with_a_failed_dir"})
#: Shares of the worlds whose logs get into trouble, with a producer of a compacted topic, with a prober of replicas.
IN_TROUBLE, KEYED, PROBED = 0.45, 0.3, 0.3
#: The share of worlds in which somebody asks for offsets.
ASKED: Final = 0.25
#: The share of worlds with a crowd in which somebody hesitates.
HESITATES: Final = 0.5
#: The share of worlds with a crowd, and how many it has.
CROWDED: Final = 0.4
CROWDS: Final = (3, 4, 6)
#: The share of worlds that are narrow: two late kinds of step, perhaps with a plain one, again and again, few clients,
#: and nothing else. What a fault hides elsewhere shows there, and they take little time.
NARROW: Final = 0.2
NARROW_STEPS: Final = (3, 5, 8)
NARROW_WAITS_S: Final = (1.0, 3.0, 5.0)
#: Where logs are in trouble, housekeeping is soon.
SOON_MS: Final = 1500


def shape_of(seed: int, shape: Shape) -> Shape:
    """With what its late steps need, late settings, and its late clients; of a narrow world, with few clients."""
    if random.Random(f"{seed}/impatient").random() < IMPATIENT:
        shape = replace(shape, request_timeout_ms=2000)
    if random.Random(f"{seed}/memory").random() < SHORT_OF_MEMORY:
        shape = replace(shape, request_memory_bytes=REQUEST_MEMORY)
    if random.Random(f"{seed}/ids").random() < FROM_ZERO:
        shape = replace(shape, first_id=0)
    shape = replace(shape, client_listener=random.Random(f"{seed}/listeners").random() < CLIENTS_APART)
    crowd = random.Random(f"{seed}/crowd")
    if crowd.random() < CROWDED:
        shape = replace(shape, crowd=crowd.choice(CROWDS))
    chance = random.Random(f"{seed}/late clients")
    keyed, probed = int(chance.random() < KEYED), int(chance.random() < PROBED)
    troubles = troubles_of(seed)
    if troubles or keyed:
        shape = replace(shape, housekeeping_ms=SOON_MS)
    if _is_administered(seed):
        tools = random.Random(f"{seed}/what tools need")
        shape = replace(shape, fetch_bytes=SMALL_FETCH) if tools.random() < TOOLED_SLOWLY else shape
        shape = replace(shape, log_dirs=2) if tools.random() < TOOLED_DIRS else shape
    if "move_dirs_in_trouble" in troubles:
        shape = replace(shape, log_dirs=2, fetch_bytes=SMALL_FETCH)  # so that a copy takes several steps
    at_the_end = {kind for _, kind in (*_ruining(seed), *_last(seed))}
    if at_the_end & {"start_without_a_dir", "delete_off_a_failed_dir", "come_back_to_a_broker_with_a_failed_dir"}:
        shape = replace(shape, log_dirs=2)
    if at_the_end & set(SECOND_TERMS):
        shape = replace(shape, controllers=max(2, shape.controllers))
    if "cut_what_moves" in (kind for _, kind in _last(seed)):
        shape = replace(shape, log_dirs=2, fetch_bytes=SMALL_FETCH)
    asked = int(random.Random(f"{seed}/asks for offsets").random() < ASKED)
    shape = replace(shape, keyed_producers=keyed, replica_probers=probed, offset_probers=asked)
    if shape.crowd:
        shape = replace(shape, hesitant=int(random.Random(f"{seed}/hesitates").random() < HESITATES))
    return _narrowed(seed, shape) if is_narrow(seed) else shape


def is_narrow(seed: int) -> bool:
    """Whether all steps of this world are those of `narrow_steps`."""
    return random.Random(f"{seed}/is narrow").random() < NARROW


def narrow_kinds(seed: int) -> list[str]:
    """The kinds of step of a narrow world."""
    chance = random.Random(f"{seed}/narrow kinds")
    apart = {*CALM, *RUINED, *HELD, *UNHEARD, *IN_VAIN, *AFTERMATH, *CORNERS}
    apart |= {*SLOW, *RESETTLED, *SELDOM, *SMALL_PRINT, *SECOND_TERMS}
    late = [kind for kind in LATE if kind not in apart]
    return [*chance.sample(late, 2), *chance.sample([*OPERATIONS, *COMBINED], chance.choice((0, 1, 1)))]


def narrow_steps(seed: int) -> Iterator[tuple[float, str]]:
    """(seconds to wait, kind) of the steps of a narrow world, without an end."""
    chance, kinds = random.Random(f"{seed}/narrow steps"), narrow_kinds(seed)
    while True:
        yield chance.choice(NARROW_WAITS_S), chance.choice(kinds)


def narrow_end(seed: int, count: int) -> list[tuple[int, float, str]]:
    """(number, seconds to wait, kind) of what a narrow world has behind so many steps."""
    steps = (*islice(_holding(seed), count), *islice(_last(seed), count))
    return [(count + number, wait_s, kind) for number, (wait_s, kind) in enumerate(steps, 1)]


def _narrowed(seed: int, shape: Shape) -> Shape:
    """Brokers, topics and settings stay; of the clients, a producer or two."""
    chance, kinds = random.Random(f"{seed}/narrow shape"), set(narrow_kinds(seed))
    shape = replace(shape, steps=chance.choice(NARROW_STEPS), side_producers=chance.choice((0, 1)))
    shape = replace(shape, producers=chance.choice((0, 1)), idempotent_producers=1, acks_one_producers=0, consumers=0)
    shape = replace(shape, group_members=0, static_members=0, probers=0, crowd=0, keyed_producers=0, replica_probers=0)
    shape = replace(shape, hesitant=0)
    if kinds & {*TOOLS, "move_dirs_in_trouble"}:
        shape = replace(shape, fetch_bytes=SMALL_FETCH, log_dirs=chance.choice((1, 2, 2)))
    return replace(shape, log_dirs=2) if kinds & NEED_DIRS else shape


def _is_administered(seed: int) -> bool:
    """Whether an administrator runs the tool that moves replicas."""
    return any(kind in TOOLS for _, kind in _winding(seed))


def steps_of(seed: int, count: int) -> list[tuple[int, int, float, str]]:
    """(number, place, seconds to wait, kind) of the steps put to `count` others, one after another: troubles of
    logs in between, the rest at the end; of each sort no more than of the others. These keep their numbers, and what
    they draw."""
    chance, found = random.Random(f"{seed}/places"), list[tuple[int, int, float, str]]()
    for wait_s, kind in islice(_troubling(seed), count):
        found.append((count + len(found) + 1, chance.randint(0, count + len(found)), wait_s, kind))
    before = len(found)
    for wait_s, kind in (
        *islice(_winding(seed), count),
        *islice(_damaging(seed), count),
        *islice(_twisting(seed), count),
        *islice(_ruining(seed), count),
        *islice(_holding(seed), count),
        *islice(_last(seed), count),
    ):
        found.append((count + len(found) + 1, count + len(found), wait_s, kind))
    if len(found) > before and random.Random(f"{seed}/calm").random() < CALMED:
        number, place, _, kind = found[before]
        found[before] = number, place, CALM_S, kind
        found.append((count + len(found) + 1, place, 0.5, next(iter(CALM))))
    return found


def troubles_of(seed: int) -> list[str]:
    """The kinds of trouble with logs that a world has."""
    chance = random.Random(f"{seed}/logs")
    return chance.sample(list(LOG_TROUBLES), chance.choice((1, 2, 3))) if chance.random() < IN_TROUBLE else []


def _troubling(seed: int) -> Iterator[tuple[float, str]]:
    chance, kinds = random.Random(f"{seed}/log steps"), troubles_of(seed)
    for _ in range(chance.choice((2, 3, 4)) if kinds else 0):
        yield chance.choice(WAITS_S), chance.choice(kinds)


def _winding(seed: int) -> Iterator[tuple[float, str]]:
    chance = random.Random(f"{seed}/winding")
    kinds = [kind for kind in (*WINDING, *TOOLS) if chance.random() < WINDING_SHARE]
    for _ in range(chance.choice((1, 2, 3)) if kinds else 0):
        yield chance.choice(WAITS_S), chance.choice(kinds)


def _damaging(seed: int) -> Iterator[tuple[float, str]]:
    chance, kinds = random.Random(f"{seed}/damaging"), [*FOREIGN, *MOMENTS]
    for _ in range(chance.choice(DAMAGES)):
        yield chance.choice(WAITS_S), chance.choice(kinds)


def _twisting(seed: int) -> Iterator[tuple[float, str]]:
    chance = random.Random(f"{seed}/twisting")
    for _ in range(chance.choice((1, 2)) if chance.random() < TWISTED else 0):
        yield chance.choice(WAITS_S), chance.choice(list(TWISTS))


def _ruining(seed: int) -> Iterator[tuple[float, str]]:
    chance = random.Random(f"{seed}/ruining")
    for _ in range(chance.choice((1, 2, 2)) if chance.random() < RUINED_SHARE else 0):
        yield chance.choice(WAITS_S), chance.choice(list(RUINED))


def _holding(seed: int) -> Iterator[tuple[float, str]]:
    chance = random.Random(f"{seed}/holding")
    for _ in range(chance.choice((1, 2)) if chance.random() < HOLDING else 0):
        yield chance.choice(WAITS_S), chance.choice(list(HELD))


def _last(seed: int) -> Iterator[tuple[float, str]]:
    for name, kinds, share in (
        *(("unhearing", UNHEARD, UNHEARD_SHARE), ("in vain", IN_VAIN, IN_VAIN_SHARE)),
        *(("returning", AFTERMATH, RETURNING), ("cornering", CORNERS, CORNERED)),
        *(("slowing", SLOW, SLOWED), ("resettling", RESETTLED, RESET), ("seldom", SELDOM, SELDOM_SHARE)),
        *(("small print", SMALL_PRINT, HELD_TO_IT), ("serving again", SECOND_TERMS, AGAIN)),
    ):
        chance = random.Random(f"{seed}/{name}")
        for _ in range(chance.choice((1, 2)) if chance.random() < share else 0):
            yield chance.choice(WAITS_S), chance.choice(list(kinds))
