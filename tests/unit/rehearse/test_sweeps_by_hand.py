"""What a sweep varies, and how its rows are told: without a rehearsal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from controller.rehearse import sweep_table, variants
from controller.rehearse.exposure import Loss
from controller.rehearse.scenario import EVENT_ADAPTER, Kill, Scenario, ScenarioError
from controller.rehearse.sweep_table import answers, show
from controller.rehearse.variants import Sweep, Variant, parse_moments, severity, with_losses
from controller.wire.cluster_file import shape_of

SHAPE = shape_of({"brokers": [{"id": 2, "rack": "b"}, {"id": 1, "rack": "a"}, {"id": 3}]}, "here")
JOIN = EVENT_ADAPTER.validate_python({"do": "add_broker", "id": 7, "rack": "c", "spread": True, "at": "60s"})
MOVE = EVENT_ADAPTER.validate_python({"do": "reassign", "at": "1s", "throttle": 5, "batch": 9})
SCENARIO = Scenario.model_validate({"cluster": SHAPE, "events": (MOVE, JOIN), "end_ms": 600_000, "broker_start": "2s"})


def told(sweep: Sweep, scenario: Scenario = SCENARIO) -> list[tuple[str, dict[str, Any], int, list[float | None]]]:
    """Of each base: its name, what it varies, its seed, the throttles of what moves."""
    return [
        (v.name, dict(v.varied), v.scenario.seed, [e.throttle for e in v.scenario.events if hasattr(e, "throttle")])
        for v in sweep.bases(scenario)
    ]


def test_each_throttle_is_rehearsed_with_each_seed() -> None:
    sweep = Sweep.parse(SCENARIO, ["broker", "throttle=10M, 2MB", "seed=3..4"])
    assert sweep.losses == tuple(Loss(broker=n) for n in (1, 2, 3, 7))
    assert told(sweep) == [
        ("throttle 10M, seed 3", {"throttle": "10M", "seed": 3}, 3, [1e7, 1e7]),
        ("throttle 10M, seed 4", {"throttle": "10M", "seed": 4}, 4, [1e7, 1e7]),
        ("throttle 2MB, seed 3", {"throttle": "2MB", "seed": 3}, 3, [2e6, 2e6]),
        ("throttle 2MB, seed 4", {"throttle": "2MB", "seed": 4}, 4, [2e6, 2e6]),
    ]
    racks = Sweep.parse(SCENARIO, ["rack"])
    assert racks.losses == tuple(Loss(rack=rack) for rack in "abc")
    assert told(racks) == [("nothing lost", {}, 1, [5.0, None])]
    assert Sweep.parse(SCENARIO, ["seed=5,1"]).seeds == (5, 1) and Sweep.parse(SCENARIO, ["seed=5,1"]).losses is None


WRONG = [
    (["broker", "broker"], "each kind may be there once"),
    (["broker=1"], "there are broker, rack, throttle="),
    (["throttle"], "there are broker, rack, throttle="),
    (["seed="], "there are broker, rack, throttle="),
    (["seed=2..1"], "no seed between them"),
    (["seed=1..100001"], "a sweep has 100,000 seeds at most"),
    (["seed=a"], "expected 1..50 or 1,2,3"),
    (["throttle=0.5"], "a throttle is at least 1 byte per second"),
    (["throttle=fast"], "'fast' is no size"),
]


@pytest.mark.parametrize(("each", "why"), WRONG)
def test_what_cannot_be_varied_is_refused(each: list[str], why: str) -> None:
    with pytest.raises(ScenarioError, match=why):
        Sweep.parse(SCENARIO, each)


@pytest.mark.parametrize(
    ("events", "moves"),
    [((), False), ((JOIN.model_copy(update={"spread": False}),), False), ((JOIN,), True), ((MOVE,), True)],
)
def test_a_throttle_needs_what_moves(events: tuple[Any, ...], moves: bool) -> None:
    scenario = SCENARIO.model_copy(update={"events": events})
    if moves:
        assert Sweep.parse(scenario, ["throttle=1"]).throttles == ("1",)
        return
    with pytest.raises(ScenarioError, match="nothing moves"):
        Sweep.parse(scenario, ["throttle=1"])


def test_moments_are_times_before_the_end_or_words() -> None:
    assert parse_moments("worst, 9m ,fullest", SCENARIO) == ["worst", 540_000, "fullest"]
    assert parse_moments("10m", SCENARIO.model_copy(update={"end_ms": None})) == [600_000]
    with pytest.raises(ScenarioError, match="10m is not before the end of the rehearsal, 00:10:00"):
        parse_moments("10m", SCENARIO)
    with pytest.raises(ScenarioError, match="or one of worst, busiest, fullest"):
        parse_moments("later", SCENARIO)


def lost_at(loss: Loss, at: list[int | str], base: Variant, **row: Any) -> list[tuple[str, int]]:
    exposed = {"rack": loss.rack, "broker": loss.broker, "at_ms": 300_000, "from_ms": 0, "to_ms": 500_000}
    figures = {"busiest_ms": 100_000, "peak_link_ms": 900_000, "end_ms": 700_000, "exposed": [exposed | row]}
    found = list(with_losses(base, [loss], figures, at, 5_000))
    for variant in found:
        kill = next(event for event in variant.scenario.events if isinstance(event, Kill))
        whom = (None if loss.broker is None else (loss.broker,), loss.rack)
        assert (kill.at, kill.for_, kill.broker, kill.rack) == (variant.varied["at_ms"], 5_000, *whom)
        assert variant.varied == {"loss": str(loss), "at_ms": kill.at, **base.varied}
        assert [e.at for e in variant.scenario.events] == sorted(e.at for e in variant.scenario.events)
    return [(variant.name, variant.varied["at_ms"]) for variant in found]


def test_a_loss_is_played_at_its_moments_each_once_and_not_before_there_is_a_broker() -> None:
    plain, seeded = Variant("nothing lost", SCENARIO), Variant("seed 3", SCENARIO, {"seed": 3})
    broker, joined = Loss(broker=1), Loss(rack="c")
    assert lost_at(broker, ["worst", "busiest", 7_000], plain) == [
        ("broker 1 lost at 00:05:00", 300_000),
        ("broker 1 lost at 00:01:40", 100_000),
        ("broker 1 lost at 7.0 s", 7_000),
    ]  # fmt: skip
    # a fullest link behind the end is held to it; of what is the same everywhere the busiest moment is the worst
    assert lost_at(broker, ["fullest"], seeded) == [("broker 1 lost at 00:10:00, seed 3", 599_999)]
    assert lost_at(broker, ["worst", "busiest"], plain, to_ms=700_000) == [("broker 1 lost at 00:01:40", 100_000)]
    assert [at for _, at in lost_at(broker, ["worst"], plain, from_ms=1, to_ms=700_000)] == [300_000]
    assert [at for _, at in lost_at(broker, [9_000, 9_999, 10_000], plain)] == [9_000, 10_000]
    assert [at for _, at in lost_at(joined, [0, 62_999, 63_000], plain)] == [63_000]


CALM: dict[str, Any] = {
    "variant": "nothing lost", "varied": {}, "moves_end_ms": None, "end_ms": 60_000, "is_over": True, "lost_bytes": 0.0,
    "unclean_elections": 0, "refused_bytes": 0.0, "at_risk_bytes": 0.0, "peak_link": 0.0, "peak_link_broker": None,
    "peak_link_ms": 0, "moved_bytes": 0.0, "warnings": [],
    "troubles": {
        name: {"partitions": 0, "partition_ms": 0}
        for name in ("offline", "under_min_isr", "under_replicated", "moving")
    },
}  # fmt: skip


def troubled(trouble: str, **figures: int) -> dict[str, Any]:
    return {"troubles": CALM["troubles"] | {trouble: CALM["troubles"]["offline"] | figures}}


#: from the worst to the least
SEVERE: list[dict[str, Any]] = [
    {"lost_bytes": 1.0}, {"unclean_elections": 1}, troubled("offline", partitions=1),
    troubled("under_min_isr", partitions=1), {"refused_bytes": 1.0}, {"is_over": False}, {"at_risk_bytes": 1.0},
    troubled("under_replicated", partition_ms=1), {"moves_end_ms": 60_001}, {}, {"moves_end_ms": 59_999},
]  # fmt: skip


def test_which_of_two_rehearsals_is_worse() -> None:
    found = [severity(CALM | row) for row in SEVERE]
    assert found == sorted(found, reverse=True) and len(set(found)) == len(found)


def test_the_table_has_the_worst_losses_first_and_what_is_without_one_at_its_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sweep_table, "_ROWS_MAX", 2)
    monkeypatch.setattr(sweep_table, "answers", lambda rows: [f"{len(rows)} rows"])

    def row(loss: str | None, **figures: Any) -> dict[str, Any]:
        varied: dict[str, Any] = {"seed": 3} if loss is None else {"loss": loss, "at_ms": 5_000, "seed": 3}
        return CALM | {"variant": f"{loss} lost", "varied": varied} | figures

    moving = troubled("moving", partitions=2)
    link = {"peak_link": 0.5, "peak_link_broker": 0}
    rows = [
        row("broker 1", refused_bytes=1_500_000.0, **link),
        row("broker 2", lost_bytes=1e9, moves_end_ms=9_000, **moving),
        row("broker 3"),
        row(None, **moving),
    ]  # fmt: skip
    show(rows, rows[1], Path("out"))
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert lines == [
        "loss at seed move ends offline under min ISR under-replicated refused lost at risk unclean fullest link",
        "broker 2 5.0 s 3 9.0 s 0 0 0 0 1,000.0 MB 0 0 –",
        "broker 1 5.0 s 3 – 0 0 0 1.5 MB 0 0 0 50% (0)",
        "nothing lost 3 never 0 0 0 0 0 0 0 –",
        "and 1 more in out/sweep.json",
        "4 rows",
        "worst broker 2 lost: out/rehearsal.html",
    ]
    show(rows[3:], rows[3], Path("out"))
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert lines[1:] == ["3 never 0 0 0 0 0 0 0 –", "1 rows", "worst None lost: out/rehearsal.html"]


def test_each_throttle_is_answered_with_its_worst_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what goes offline or under its min ISR that alone counts that does not without the loss."""
    monkeypatch.setattr(sweep_table, "moves_and_links", lambda base: [base["variant"], "it is."])

    def row(name: str, offline: int, under: int, **varied: Any) -> dict[str, Any]:
        both = troubled("offline", partitions=offline)["troubles"] | {
            "under_min_isr": {"partitions": under, "partition_ms": 0}
        }
        return CALM | {"variant": name, "varied": varied, "troubles": both}

    found = answers([
        row("a", 4, 1, loss="broker 1", at_ms=5_000, throttle="1M"),
        row("b", 5, 1, loss="broker 2", at_ms=6_000, throttle="1M"),
        row("c", 9, 9, loss="broker 2", at_ms=7_000, throttle="2M"),
        row("throttle 1M", 2, 3, throttle="1M"),
        row("throttle 3M", 2, 3, throttle="3M"),
    ])  # fmt: skip
    assert found == [
        "throttle 1M: throttle 1M it is. A loss of broker 2 at its worst moment, 6.0 s, takes 3 partitions offline and "
        "0 under their min ISR."
    ]
    plain = [row("c", 9, 9, loss="rack a", at_ms=7_000), row("nothing lost", 8, 0)]
    assert answers(plain) == [
        "nothing lost it is. A loss of rack a at its worst moment, 7.0 s, takes 1 partition offline and 9 under their "
        "min ISR."
    ]
    assert answers(plain[1:]) == []


def test_a_variant_is_sent_without_its_cluster_and_played_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    played: list[Variant] = []
    monkeypatch.setattr(variants, "play", lambda variant: played.append(variant) or {})
    whole = Variant("v", SCENARIO, {"seed": 3})
    light = variants.without_cluster(whole)
    assert light.scenario.cluster.brokers != SHAPE.brokers and len(light.scenario.cluster.brokers) == 1
    variants.play_in(SHAPE, light)
    assert played == [whole]


@pytest.mark.parametrize(("batch", "expected"), [(None, [9, None]), (0, [None, None]), (4, [4, 4])])
def test_a_batch_is_that_of_the_scenario_unless_one_is_given(batch: int | None, expected: list[int | None]) -> None:
    found: Any = variants.with_throttle(SCENARIO, 3.0, batch).events
    assert ([e.batch for e in found], [e.throttle for e in found]) == (expected, [3.0, 3.0])
