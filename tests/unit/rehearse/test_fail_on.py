"""`--fail-on`: a condition fails where what it names has happened, and nowhere else."""

from __future__ import annotations

from typing import Any

import pytest

from controller.rehearse.fail_on import CONDITIONS, FailOnError, failures, parse_conditions

KINDS = ("offline", "under_min_isr", "under_replicated", "moving")
#: Nothing went wrong, and nothing moved.
CALM: dict[str, Any] = {
    "troubles": {kind: {"partitions": 0} for kind in KINDS},
    "unclean_elections": 0,
    "is_over": True,
    "refused_bytes": 0.0,
    "lost_bytes": 0.0,
    "at_risk_bytes": 0.0,
    "moves_end_ms": None,
}


def troubled(kind: str, count: int) -> dict[str, Any]:
    return {"troubles": {**CALM["troubles"], kind: {"partitions": count}}}


#: condition -> what makes it fail, and what it says then
HAPPENED: dict[str, tuple[dict[str, Any], str]] = {
    "offline": (troubled("offline", 3), "3 partitions offline"),
    "under-min-isr": (troubled("under_min_isr", 1), "1 partition under min ISR"),
    "under-replicated": (troubled("under_replicated", 2), "2 partitions under-replicated"),
    "unclean": ({"unclean_elections": 1}, "1 unclean election"),
    "refused": ({"refused_bytes": 2e6}, "2.0 MB of records refused"),
    "lost": ({"lost_bytes": 1.0}, "0.0 MB of acknowledged records lost"),
    "at-risk": ({"at_risk_bytes": 5e6}, "5.0 MB of records on one replica alone"),
    "never-ends": ({"is_over": False}, "moves or catch-ups never end"),
}


@pytest.mark.parametrize("name", CONDITIONS)
def test_a_condition_fails_by_what_it_names_alone(name: str) -> None:
    for other, (happened, said) in HAPPENED.items():
        expected = [said] if other == name else []
        assert failures(parse_conditions(name), {**CALM, **happened}) == expected, other
    assert failures(parse_conditions(name), CALM) == []
    everything = {**CALM, "troubles": {kind: {"partitions": 1} for kind in KINDS}}
    for happened, _ in HAPPENED.values():
        everything |= {what: value for what, value in happened.items() if what != "troubles"}
    assert len(failures(parse_conditions(",".join(CONDITIONS)), everything)) == len(CONDITIONS)


#: when the moves end (None: not within the rehearsal), partitions that move -> whether `eta>1m` fails
ENDS = [(None, 0, False), (None, 1, True), (0, 1, False), (60_000, 2, False), (60_001, 2, True), (7_200_000, 2, True)]


@pytest.mark.parametrize(("end_ms", "moving", "fails"), ENDS)
def test_moves_that_end_too_late_or_never_fail(end_ms: int | None, moving: int, fails: bool) -> None:
    said = failures(parse_conditions("eta>1m"), {**CALM, **troubled("moving", moving), "moves_end_ms": end_ms})
    assert bool(said) is fails


@pytest.mark.parametrize("text", ["of-fline", "eta", "eta>", "eta>x", "eta<1m", "", " "])
def test_what_is_no_condition_is_refused(text: str) -> None:
    """An empty text, too: it is a variable that a script never set, and would let everything pass."""
    for words in (text, f"offline,{text}", f"{text},offline"):
        with pytest.raises(FailOnError, match="--fail-on"):
            parse_conditions(words)
