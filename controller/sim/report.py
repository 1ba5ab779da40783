"""How worlds and their failures are shown: for people, and as JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from rich.console import Console

from controller.sim.many import Tally
from controller.sim.plan import Plan, draw_plan
from controller.sim.play import KINDS, Outcome
from controller.sim.shape import Shape

_SHOWN_EVENTS: Final = 25


def command_of(plan: Plan, written: tuple[Path, Plan] | None = None) -> str:
    """The one command that plays this plan again: of its seed, or of the plan that a file has of it."""
    file, whole = written or (None, draw_plan(plan.seed, KINDS))
    usual = dict(whole.shape.rows())
    changes = [f"{name}={value}" for name, value in plan.shape.rows() if value != usual[name]]
    words = ["kwob sim repeat", str(plan.seed), *([] if file is None else [f"--plan {file}"])]
    if plan.steps != (draw_plan(plan.seed, KINDS, changes) if file is None else whole).steps:
        words.append("--only " + (",".join(str(step.number) for step in plan.steps) or "none"))
    return " ".join([*words, *(f"--set {change}" for change in changes)])


def print_world(plan: Plan, console: Console) -> None:
    """Every drawn option that is not what it usually is, and every kind of step that is on."""
    usual = dict(Shape().rows())
    shape = ", ".join(f"{name}={value}" for name, value in plan.shape.rows() if value != usual.get(name))
    console.print(f"seed {plan.seed}: {shape}")
    weights = ", ".join(f"{kind} {weight}" for kind, weight in sorted(plan.weights.items()))
    console.print(f"kinds of steps and their weights: {weights}")


def print_failure(
    outcome: Outcome, console: Console, *, events: int = _SHOWN_EVENTS, command: str | None = None
) -> None:
    """World, steps, broken property, last events, and the command that plays it again (by default the plan's)."""
    print_world(outcome.plan, console)
    console.print("steps taken:")
    for line in outcome.taken:
        console.print(f"  {line}")
    console.print("last events:")
    for line in outcome.last_events[-events:]:
        console.print(f"  {line[:300]}")
    console.print("broken:", style="bold red")
    for line in outcome.broken:
        console.print(f"  {line}")
    console.print(f"again: {command or command_of(outcome.plan)}", style="bold")


def outcome_value(outcome: Outcome, *, command: str | None = None) -> dict[str, Any]:
    """An outcome as JSON. `command` plays it again; by default the plan's."""
    plan = outcome.plan
    return {
        "seed": plan.seed,
        "world": dict(plan.shape.rows()),
        "weights": plan.weights,
        "steps": [{"number": s.number, "wait_s": s.wait_s, "kind": s.kind} for s in plan.steps],
        "taken": outcome.taken,
        "broken": outcome.broken,
        "last_events": outcome.last_events,
        "virtual_s": outcome.virtual_s,
        "command": command or command_of(plan),
    }


def tally_text(tally: Tally) -> str:
    """One line: how many, how fast, how many failed."""
    seeds_a_second, virtual_a_second = tally.rates()
    return (
        f"{tally.seeds} worlds, {len(tally.failed)} with a violation; {tally.virtual_s:,.0f} virtual seconds, "
        f"{tally.records:,} acknowledged records; {seeds_a_second:.2f} worlds/s, {virtual_a_second:.0f} virtual s/s, "
        f"{tally.cpu_s / max(tally.seeds, 1):.2f} CPU seconds per world"
    )
