"""What a seed does to its cluster, as a list of values that is known before it starts.

Swarm testing: each seed turns each kind of step on or off and gives it a weight of its own, so that some worlds do one
thing often and others never. A step holds no targets: when its turn comes it draws them, from a stream of its own,
among what is there then. So a step can be left out and the others stay what they are, which is what shrinking does.
Source: Groce et al., Swarm Testing, ISSTA 2012.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from controller.sim import late
from controller.sim.shape import Shape, draw_shape


@dataclass(frozen=True, slots=True)
class Step:
    """Number `number`: after `wait_s` virtual seconds, one of `KINDS`."""

    number: int
    wait_s: float
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One world. `weights` are those of the kinds that are on; 0 or absent is off."""

    seed: int
    shape: Shape
    weights: dict[str, int]
    steps: tuple[Step, ...]

    def stream(self, step: Step) -> random.Random:
        """What the step draws from."""
        return random.Random(f"{self.seed}/step/{step.number}")

    def only(self, numbers: Collection[int]) -> Plan:
        """The same world with these steps alone; what was waited for stays waited for."""
        kept: list[Step] = []
        waited_s = 0.0
        for step in self.steps:
            waited_s += step.wait_s
            if step.number in numbers:
                kept.append(replace(step, wait_s=waited_s))
                waited_s = 0.0
        return replace(self, steps=tuple(kept))


def plan_of(value: Mapping[str, Any]) -> Plan:
    """A plan that was written down: `seed`, `world` (the options that are not the usual ones), `steps`.

    It stays what it is whatever seeds draw later: that is how worlds that found something are kept.
    Raises: ShapeError; KeyError, for a part that is missing.
    """
    shape = Shape().with_text([f"{name}={text}" for name, text in value["world"].items()])
    steps = tuple(Step(row["number"], row["wait_s"], row["kind"]) for row in value["steps"])
    return Plan(seed=value["seed"], shape=shape, weights={}, steps=steps)


#: Seconds between two steps.
WAITS_S = (0.02, 0.2, 0.5, 1.0, 2.0, 4.0, 8.0)
#: Weights that a kind may get, when it is on.
WEIGHTS = (1, 1, 2, 4)
#: Of the worlds whose machines lose their power, the share where nothing waits for the disk.
UNSYNCED = 0.4
#: The share of worlds with a crowd.
CROWDED = 0.4
#: What undoes others is never off: worlds that only break show little.
ALWAYS = frozenset({"start", "resume", "heal"})


def draw_plan(seed: int, kinds: Sequence[str], changes: Sequence[str] = ()) -> Plan:
    """The world of a seed. `kinds` are the steps that there are, but for those of `late`, which alone are those of
    narrow worlds; `changes` texts for `Shape.with_text`.

    Raises: ShapeError.
    """
    chance = random.Random(f"{seed}/plan")
    shape = draw_shape(chance)
    if shape.power_cuts and random.Random(f"{seed}/unsynced").random() < UNSYNCED:
        shape = replace(shape, flush_messages=0)
    shape = late.shape_of(seed, shape).with_text(changes)
    on_share = chance.choice((0.2, 0.5, 0.8))
    weights: dict[str, int] = {}
    for kind in kinds:
        is_on, weight = chance.random() < on_share, chance.choice(WEIGHTS)
        if kind in ALWAYS:
            weights[kind] = weight + 1
        elif is_on:
            weights[kind] = weight
    pace = chance.choice((0.15, 0.4, 0.9))
    if late.is_narrow(seed):
        rows = enumerate(islice(late.narrow_steps(seed), shape.steps), 1)
        own = [Step(number, *row) for number, row in rows]
        end = [Step(*row) for row in late.narrow_end(seed, shape.steps)]
        return Plan(seed=seed, shape=shape, weights={}, steps=(*own, *end))
    names = list(weights)
    picker = random.Random(f"{seed}/steps")
    steps = [
        Step(number, pace * picker.choice(WAITS_S), picker.choices(names, list(weights.values()))[0])
        for number in range(1, shape.steps + 1)
    ]
    for number, place, wait_s, kind in late.steps_of(seed, len(steps)):
        steps.insert(place, Step(number, wait_s, kind))
    return Plan(seed=seed, shape=shape, weights=weights, steps=tuple(steps))
