"""A rehearsal as one page, one file, no scripts: warnings first, the time line as plots, each broker's limits.

Plots are inline SVG, so the page is readable wherever a browser opens files, in light and dark, wide and narrow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import Final

from controller.rehearse.answer import answer
from controller.rehearse.clock import clock
from controller.rehearse.ledger import Trouble
from controller.rehearse.outcome import Outcome
from controller.rehearse.recorder import Sample
from controller.wire.types import TopicPartition

_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 900, 150, 60, 22
#: More brokers than this share their lane plots by the worst of them.
_BROKERS_MAX: Final = 24
#: Rows of a table of partitions.
_ROWS_MAX: Final = 20

_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #5c6670; --paper: #fff; --line: #d5dbe1; --bad: #c62828;
  --warn: #b26a00; --good: #1b7f4d; --one: #1769aa; --two: #8e44ad; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ec; --soft: #9aa5b1; --paper: #14181c; --line: #333b43;
  --bad: #ff7b72; --warn: #e3a54a; --good: #56c98b; --one: #6cb6ff; --two: #d2a8ff; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 0 auto;
  max-width: 60rem; padding: 1rem; }
h1 { font-size: 1.5rem; margin: 0 0 .3rem } h2 { font-size: 1.1rem; margin: 1.6rem 0 .4rem }
.answer { font-size: 1.1rem } .bad { color: var(--bad) } .good { color: var(--good) } .soft { color: var(--soft) }
ul { padding-left: 1.2rem } .scroll { overflow-x: auto }
table { border-collapse: collapse; width: 100% } th, td { text-align: left; padding: .25rem .6rem .25rem 0;
  border-bottom: 1px solid var(--line); white-space: nowrap } td.n, th.n { text-align: right }
svg { width: 100%; height: auto; display: block; overflow: visible }
svg text { fill: var(--soft); font: 11px system-ui, sans-serif }
.axis { stroke: var(--line) } figure { margin: .6rem 0 } figcaption { color: var(--soft) }
@media (max-width: 600px) { svg text { font-size: 21px } table { font-size: 13px }
  th, td { white-space: normal; padding-right: .35rem } }
"""


def render(outcome: Outcome) -> str:
    """The whole page."""
    parts = [
        f"<h1>{escape(outcome.name)}</h1>",
        f'<p class="answer">{escape(answer(outcome.summary()))}</p>',
        _warnings(outcome),
        _troubles(outcome),
        _plots(outcome),
        _story(outcome),
        _worst_partitions(outcome),
        _moves(outcome),
        _brokers(outcome),
        _fine_print(outcome),
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(outcome.name)}: rehearsal</title><style>{_STYLE}</style></head><body><main>"
        + "\n".join(parts)
        + "</main></body></html>\n"
    )


def _warnings(outcome: Outcome) -> str:
    if not outcome.warnings:
        return '<p class="good">No warnings.</p>'
    rows = "".join(f"<li>{escape(warning)}</li>" for warning in outcome.warnings)
    return f'<section aria-label="Warnings"><h2>Warnings</h2><ul class="bad">{rows}</ul></section>'


def _troubles(outcome: Outcome) -> str:
    rows = []
    for name, totals in outcome.troubles.items():
        worst = clock(totals.at_most_ms) if totals.partitions else "–"
        rows.append(
            (
                name.replace("_", " "),
                f"{totals.partitions:,}",
                f"{totals.at_most:,}",
                worst,
                clock(totals.longest_ms) if totals.partitions else "–",
            )
        )
    heads = ("", "partitions", "most at once", "worst moment", "longest")
    return "<h2>What happens to partitions</h2>" + _table(heads, rows)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f'<th class="{"n" if n else ""}" scope="col">{escape(text)}</th>' for n, text in enumerate(heads))
    body = "".join(
        "<tr>" + "".join(f'<td class="{"n" if n else ""}">{escape(text)}</td>' for n, text in enumerate(row)) + "</tr>"
        for row in rows
    )
    return f'<div class="scroll" tabindex="0"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _plots(outcome: Outcome) -> str:
    counts: list[tuple[str, str, Callable[[Sample], float]]] = [
        ("offline", "var(--bad)", lambda s: s.offline),
        ("under min ISR", "var(--warn)", lambda s: s.under_min_isr),
        ("under-replicated", "var(--two)", lambda s: s.under_replicated),
        ("moving", "var(--one)", lambda s: s.moving),
    ]
    shown = [row for row in counts if any(row[2](sample) for sample in outcome.samples)]
    plots = [_plot("Partitions", outcome, shown)] if shown else []
    if any(sample.left_bytes for sample in outcome.samples):
        left = [("GB to copy", "var(--one)", lambda s: s.left_bytes / 1e9)]
        plots.append(_plot("Bytes left to copy, GB", outcome, left))
    if outcome.at_risk_bytes:
        risk = [("MB on one replica alone", "var(--bad)", lambda s: s.at_risk_bytes / 1e6)]
        plots.append(_plot("Records at risk, MB: one replica alone has them", outcome, risk))
    for title, name in (
        ("Fullest link, out, %", "link_out"),
        ("Fullest link, in, %", "link_in"),
        ("Fullest throttle, followers, %", "follower_throttle"),
    ):
        worst = _worst(name)
        if any(worst(sample) for sample in outcome.samples):
            plots.append(_plot(title, outcome, [(title, "var(--one)", worst)]))
    return "<h2>Time line</h2>" + "".join(plots)


def _worst(name: str) -> Callable[[Sample], float]:
    return lambda sample: 100 * max((share or 0.0 for share in getattr(sample, name).values()), default=0.0)


def _plot(title: str, outcome: Outcome, series: Sequence[tuple[str, str, Callable[[Sample], float]]]) -> str:
    """Step lines over the whole rehearsal."""
    top = max((value(sample) for _, _, value in series for sample in outcome.samples), default=0.0) or 1.0
    end = max(outcome.end_ms, 1)

    def x(at_ms: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - 10) * at_ms / end

    def y(value: float) -> float:
        return 8 + (_HEIGHT - _BOTTOM - 8) * (1 - value / top)

    marks = "".join(
        f'<line class="axis" x1="{_LEFT}" x2="{_WIDTH - 10}" y1="{y(top * part):.1f}" y2="{y(top * part):.1f}"/>'
        f'<text x="{_LEFT - 6}" y="{y(top * part) + 4:.1f}" text-anchor="end">{top * part:,.3g}</text>'
        for part in (0.0, 0.5, 1.0)
    ) + "".join(
        f'<text x="{x(end * part):.1f}" y="{_HEIGHT - 6}" text-anchor="middle">{clock(round(end * part))}</text>'
        for part in (0.02, 0.25, 0.5, 0.75, 0.97)
    )
    lines = "".join(
        f'<path d="{_steps([(x(s.at_ms), y(value(s))) for s in outcome.samples])}" fill="none" '
        f'stroke="{colour}" stroke-width="1.6"/>'
        for _, colour, value in series
    )
    legend = " · ".join(f'<span style="color:{colour}">{escape(name)}</span>' for name, colour, _ in series)
    caption = f"{escape(title)}: {legend}" if len(series) > 1 else escape(title)
    return (
        f'<figure><figcaption>{caption}</figcaption><svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="{escape(title)}, at most {top:,.3g}">{marks}{lines}</svg></figure>'
    )


def _steps(points: Sequence[tuple[float, float]]) -> str:
    path, last = [], None
    for across, down in points:
        if last is None:
            path.append(f"M{across:.1f} {down:.1f}")
        elif abs(down - last) > 0.05:
            path.append(f"H{across:.1f}V{down:.1f}")
        last = down if last is None or abs(down - last) > 0.05 else last
    if points:
        path.append(f"H{points[-1][0]:.1f}")
    return "".join(path)


def _story(outcome: Outcome) -> str:
    rows = "".join(
        f'<li><span class="soft">{clock(happening.at_ms)}</span> {escape(happening.what)}</li>'
        for happening in outcome.story[:200]
    )
    more = len(outcome.story) - 200
    return f"<h2>Story</h2><ul>{rows}</ul>" + (f"<p>and {more:,} lines more</p>" if more > 0 else "")


def _worst_partitions(outcome: Outcome) -> str:
    """Those that were offline or under their min ISR, the longest in sum first."""
    sums: dict[tuple[str, TopicPartition], list[int]] = {}
    for window in outcome.windows:
        if window.trouble in (Trouble.OFFLINE, Trouble.UNDER_MIN_ISR):
            row = sums.setdefault((window.trouble.value, window.topic_partition), [])
            row.append(window.length_ms(outcome.end_ms))
    if not sums:
        return ""
    order = sorted(sums, key=lambda key: (-sum(sums[key]), key))
    rows = [
        (str(tp), trouble.replace("_", " "), str(len(sums[trouble, tp])), clock(sum(sums[trouble, tp])))
        for trouble, tp in order[:_ROWS_MAX]
    ]
    more = f": the longest {_ROWS_MAX} of {len(order):,}" if len(order) > _ROWS_MAX else ""
    return f"<h2>Partitions offline or under their min ISR{more}</h2>" + _table(
        ("partition", "is", "times", "in sum"), rows
    )


def _moves(outcome: Outcome) -> str:
    if not outcome.moves:
        return ""
    slow = sorted(outcome.moves, key=lambda m: -m.length_ms(outcome.end_ms))
    rows = [
        (
            f"{m.topic}-{m.partition}",
            clock(m.from_ms),
            "not within the rehearsal" if m.to_ms is None else clock(m.to_ms),
            clock(m.length_ms(outcome.end_ms)),
        )
        for m in slow[:_ROWS_MAX]
    ]
    heads = ("partition", "begins", "complete", "takes")
    return f"<h2>Moves: {len(outcome.moves):,}, the longest first</h2>" + _table(heads, rows)


def _brokers(outcome: Outcome) -> str:
    if not outcome.samples:
        return ""
    peak: dict[int, list[float]] = {}
    for sample in outcome.samples:
        for broker in sample.used_bytes:
            row = peak.setdefault(broker, [0.0] * 4)
            shares = (sample.link_out[broker], sample.link_in[broker], sample.disk[broker])
            for n, share in enumerate(shares):
                row[n] = max(row[n], share or 0.0)
            row[3] = max(row[3], sample.used_bytes[broker])
    worst = sorted(peak, key=lambda broker: (-max(peak[broker][:3]), broker))[:_BROKERS_MAX]
    rows = [
        (
            str(broker),
            *(f"{share:.0%}" if share else "–" for share in peak[broker][:3]),
            f"{peak[broker][3] / 1e9:,.1f}",
        )
        for broker in worst
    ]
    heads = ("broker", "link out", "link in", "disk", "GB stored")
    title = "Brokers at their peaks" + (
        f": the fullest {_BROKERS_MAX} of {len(peak)}" if len(peak) > len(worst) else ""
    )
    return f"<h2>{title}</h2>" + _table(heads, rows)


def _fine_print(outcome: Outcome) -> str:
    rows = "".join(f"<li>{escape(line)}</li>" for line in outcome.not_modelled)
    return (
        f'<h2>How this was found</h2><p class="soft">{escape(outcome.rules)}. Seed {outcome.seed}. '
        f"Not modelled:</p><ul class='soft'>{rows}</ul>"
    )
