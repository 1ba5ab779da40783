"""The report: one file that loads nothing, small whatever the trace; its script zooms by mouse, keys and touch."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from broker_sim.replay.findings import find
from broker_sim.replay.report import figures
from broker_sim.replay.report.figures import Span
from broker_sim.replay.report.page import write_report
from broker_sim.replay.what_if_limits import WORDS, in_words
from tests.unit.replay.report import made_up

#: 100,000 partitions in the data must not show in the size.
BYTES_MAX = 2_500_000


class Page(HTMLParser):
    """Elements, ids, links and whether all that was opened is closed."""

    _VOID = ("meta", "br", "rect", "path", "circle", "input")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.headings: list[str] = []
        self.tracks: list[dict[str, str | None]] = []
        self.open: list[str] = []
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self._VOID:
            self.open.append(tag)
        told = dict(attrs)
        if told.get("id"):
            self.ids.append(str(told["id"]))
        self.links.extend(str(told[name]) for name in ("href", "src", "action", "srcset") if name in told)
        if tag == "svg" and "track" in (told.get("class") or ""):
            self.tracks.append(told)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self._VOID:
            assert self.open and self.open.pop() == tag, f"</{tag}>"

    def handle_data(self, text: str) -> None:
        if self.open and self.open[-1] == "h2":
            self.headings.append(text)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("report"), 100_000)


def written(out: Path, partitions: int, **changed: Any) -> Path:
    made_up.tables(out, partitions)
    summary, troubles = made_up.summary(partitions), {**made_up.troubles(partitions), **changed}
    write_report(out, out / "report.html", summary, troubles, find(summary, troubles))
    return out / "report.html"


def test_structure(page: Path) -> None:
    parsed = Page(page.read_text())
    assert parsed.open == [] and len(set(parsed.ids)) == len(parsed.ids)
    assert parsed.headings == [
        "Findings", "Who was behind", "The worst minutes", "Over time", "What if", "Coming back", "Reassignments",
        "Rules against brokers",
    ]  # fmt: skip
    assert len([t for t in parsed.tracks if t.get("data-membership") is not None]) == 60
    strips = [t for t in parsed.tracks if t.get("data-strip") is not None]
    assert len(strips) == 60 and len([t for t in parsed.tracks if t.get("data-flaps") is not None]) == 60
    assert {t["viewbox"].split()[2] for t in parsed.tracks if t["viewbox"]} == {str(made_up.SPAN)}


def test_nothing_is_loaded_from_anywhere(page: Path) -> None:
    text = page.read_text()
    assert [link for link in Page(text).links if not link.startswith("#")] == []
    assert not re.search(r"https?:|url\(|@import|\bfetch\(|XMLHttpRequest|importScripts|\bimport\(", text)


def test_a_hundred_thousand_partitions_stay_small_and_the_worst_are_drawn(page: Path) -> None:
    assert page.stat().st_size < BYTES_MAX
    text = page.read_text()
    told = json.loads(re.findall(r'id="pointed">(.*?)</script>', text, re.S)[0])
    assert [len(strip["changes"]) for strip in told["strips"]] == [4] * 60
    assert "99,940 more are in the tables" in text


def test_a_sample_of_the_rows_behind_a_finding_is_shown(page: Path) -> None:
    text = page.read_text()
    assert "400,000 rows of windows where <code>window = &#39;under_replicated&#39;</code>" in text
    of_replica_3 = text.partition("cause = &#39;follower&#39;</code>")[2].partition("</table>")[0]
    assert of_replica_3.count("<td>follower</td>") == 8


def test_what_comes_from_outside_cannot_become_markup(tmp_path: Path) -> None:
    bad = "</script><img src=x onerror=alert(1)>"
    made_up.tables(tmp_path, 2, topic=bad)
    summary, troubles = {**made_up.summary(2), "trace": bad}, made_up.troubles(2, topic=bad)
    write_report(tmp_path, tmp_path / "r.html", summary, troubles, find(summary, troubles))
    text = (tmp_path / "r.html").read_text()
    assert "<img" not in text and text.count("</script>") == 2
    Page(text)


def test_nothing_happened_and_nothing_was_replayed(tmp_path: Path) -> None:
    text = written(tmp_path, 1, **made_up.quiet_troubles(1)).read_text()
    assert "No replica left the ISR and came back." in text and "What if" not in text


def test_a_metadata_log_has_nothing_that_rules_could_explain(tmp_path: Path) -> None:
    written(tmp_path, 1)
    summary, troubles = made_up.summary(1), made_up.troubles(1)
    nothing = {**summary["comparison"], "emitted": 0, "replayed": 0, "matched": 0}
    for shown, one in ((True, {}), (False, {"comparison": nothing, "metadata_log": {}}), (True, {"metadata_log": {}})):
        write_report(tmp_path, tmp_path / "r.html", {**summary, **one}, troubles, [])
        assert ("ISR changes not explained" in (tmp_path / "r.html").read_text()) is shown


def test_who_was_behind_stands_in_tables_that_need_no_script(page: Path) -> None:
    text = page.read_text()
    behind = text.partition('id="behind"')[2].partition('id="worst"')[0]
    assert '<tr data-broker="1"><td>1</td><td>r1</td><td class="n">1 h 0 min</td><td class="n">3 %</td>' in behind
    assert "<td>r1</td>" in behind.partition("By rack")[2]
    worst = text.partition('id="worst"')[2].partition("Over time")[0]
    assert "orders-0" in worst and "Changes of the controller" in worst and worst.count("<tr data-brokers") == 10


# -- figures ----------------------------------------------------------------------------------------------------------


def test_steps() -> None:
    assert figures.steps([(0, 3), (10, 2), (20, 2), (30, 3)], top=3, height=24, end=100) == (
        "M0 24V2H10V9.3H30V2H100V24Z"
    )
    assert figures.steps([], top=3, height=24, end=100) == ""


def test_elections_are_drawn_to_the_scale_of_those_after_the_beginning(tmp_path: Path) -> None:
    told = [{"bucket": b, "count": n, "leader_epoch": e} for b, n, e in ((0, 100_000, 0), (7, 20, 1), (9, 10, 4))]
    text = written(tmp_path, 3, elections_over_time=told).read_text(encoding="utf-8")
    assert "at most 20; line: epoch, to 4" in text
    path = re.search(r'class="elections" d="([^"]*)"', text)
    assert path is not None and re.findall(r"V([\d.]+)H", path[1]) == ["2", "2", "25"]


def test_of_a_long_name_the_end_is_kept_in_sight(page: Path) -> None:
    assert '<span class="cut"><bdi>orders-0</bdi></span>' in page.read_text(encoding="utf-8")


def test_a_partition_with_too_many_changes_shows_the_latest() -> None:
    rows = [
        {"ts": i, "isr": [1], "leader": i % 2, "leader_epoch": i, "source": "trace", "event": "leader"}
        for i in range(figures.CHANGES_MAX + 5)
    ]
    strip = figures.strip(Span(0, 1000), "orders-0", rows, [])
    assert (len(strip.changes), strip.left_out, strip.changes[-1][0]) == (figures.CHANGES_MAX, 5, 404)


ETA = [  # (ts, leo, target) -> ms
    ("at its pace", [(0, 0, 1000), (1000, 100, 1000)], 9_000),
    ("the target runs away", [(0, 0, 1000), (1000, 100, 1100)], None),
    ("it runs slower than the copy", [(0, 0, 1000), (1000, 100, 1050)], 19_000),
    ("there already", [(0, 0, 10), (1000, 10, 10)], 0),
    ("one row tells no pace", [(0, 0, 10)], None),
]


@pytest.mark.parametrize(("rows", "expected"), [pytest.param(r, e, id=i) for i, r, e in ETA])
def test_eta(rows: list[tuple[int, int, int]], expected: int | None) -> None:
    assert figures.eta_ms([{"ts": t, "leo": leo, "target": target} for t, leo, target in rows]) == expected


# -- in a browser -----------------------------------------------------------------------------------------------------

SCRIPT = """
<script>
(() => {
  const time = document.getElementById("time"), area = document.getElementById("tracks");
  const track = document.querySelector("svg.strip"), box = track.getBoundingClientRect();
  const y = box.top + 5, said = {};
  const told = JSON.parse(document.getElementById("pointed").textContent);
  const view = () => [Number(time.dataset.from), Number(time.dataset.width), track.getAttribute("viewBox")];
  const key = name => time.dispatchEvent(new KeyboardEvent("keydown", { key: name, bubbles: true, cancelable: true }));
  const point = (type, x, id, kind) => track.dispatchEvent(new PointerEvent(type, {
    clientX: x, clientY: y, pointerId: id, pointerType: kind, bubbles: true, cancelable: true, button: 0 }));
  area.setPointerCapture = () => {};
  said.all = view();
  key("+"); said.zoomed = view();
  key("ArrowRight"); said.moved = view();
  key("Home"); said.home = view();
  point("pointerdown", box.left + box.width * .25, 1, "mouse");
  point("pointermove", box.left + box.width * .4, 1, "mouse");
  point("pointerup", box.left + box.width * .5, 1, "mouse"); said.dragged = view();
  said.told = document.getElementById("told").textContent;
  track.dispatchEvent(new MouseEvent("dblclick", { bubbles: true })); said.shown_all = view();
  point("pointerdown", box.left + box.width * .4, 2, "touch");
  point("pointerdown", box.left + box.width * .6, 3, "touch");
  point("pointermove", box.left + box.width * .2, 2, "touch");
  point("pointermove", box.left + box.width * .8, 3, "touch");
  point("pointerup", box.left + box.width * .8, 3, "touch");
  point("pointerup", box.left + box.width * .2, 2, "touch"); said.pinched = view();
  track.dispatchEvent(new WheelEvent("wheel", {
    ctrlKey: true, deltaY: -300, clientX: box.left, clientY: y, bubbles: true, cancelable: true }));
  said.wheeled = view();
  document.getElementById("all").click(); said.button = view();
  const field = (id, text) => { const of = document.getElementById(id); of.value = text;
    of.dispatchEvent(new Event("change")); of.dispatchEvent(new Event("input")); };
  const seen = () => ({
    findings: [...document.querySelectorAll("ol.findings > li[data-from]")]
      .map(li => !li.classList.contains("elsewhere")),
    rows: [...document.querySelectorAll("tr[data-name]")].filter(row => !row.hidden).length });
  said.everything = seen();
  const start = document.getElementById("since").value;
  field("until", new Date(told.from + 3000).toISOString().slice(11, 23)); said.typed = view(); said.early = seen();
  field("until", "nonsense"); said.nonsense = view();
  document.getElementById("all").click();
  field("topic", "no such"); said.other = seen(); field("topic", "");
  said.start = start;
  const left = () => [...document.querySelectorAll("#behind ~ .card tr[data-broker], .row[data-broker]")]
    .filter(row => !row.hidden && row.offsetParent).map(row => row.dataset.broker);
  const choose = (id, value) => {
    const field = document.getElementById(id);
    field.value = value;
    field.dispatchEvent(new Event("input"));
  };
  said.brokers = left().length;
  choose("broker", "2"); said.broker = left();
  choose("broker", ""); choose("topic", "nowhere");
  said.topics = [...document.querySelectorAll("tr[data-topic]")].filter(row => !row.hidden).length;
  choose("topic", "");
  document.querySelector("#worst ~ .card a.show").click(); said.worst = view();
  document.getElementById("all").click();
  said.wide = document.documentElement.scrollWidth <= innerWidth;
  const out = document.createElement("pre");
  out.id = "said";
  out.textContent = JSON.stringify(said);
  document.body.append(out);
})();
</script>
"""


@pytest.mark.parametrize("width", [1280, 420])
def test_zoom_works_by_keys_mouse_and_touch(page: Path, tmp_path: Path, width: int) -> None:
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        pytest.skip("no Chromium on this machine")
    tried = tmp_path / "tried.html"
    tried.write_text(page.read_text().replace("</body>", SCRIPT + "</body>"))
    words = [browser, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    words += [f"--window-size={width},900", "--dump-dom", tried.as_uri()]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, env={**os.environ, "HOME": str(tmp_path)})
    found = re.search(r'id="said">(.*?)</pre>', done.stdout, re.S)
    assert found, done.stderr[-2000:]
    said = json.loads(found[1].replace("&amp;", "&"))
    span = made_up.SPAN
    assert said["all"][:2] == said["home"][:2] == said["shown_all"][:2] == said["button"][:2] == [0, span]
    assert said["zoomed"][:2] == [span // 4, span // 2] and said["zoomed"][2].startswith(f"{span // 4} 0 {span // 2} ")
    assert said["moved"][:2] == [span * 3 // 8, span // 2]
    assert said["dragged"][:2] == [pytest.approx(span / 4, rel=0.02), pytest.approx(span / 4, rel=0.02)]
    assert "orders-0: ISR 1, 2" in said["told"]
    assert said["pinched"][1] == pytest.approx(span / 3, rel=0.03)
    assert said["wheeled"][1] == pytest.approx(span / 3 / 2.71828, rel=0.03)
    assert said["start"] == "22:13:20.000", "the inputs say what is shown"
    assert said["typed"][:2] == said["nonsense"][:2] == [0, 3_000], "and change it, unless they cannot be read"
    assert all(said["everything"]["findings"]) and said["everything"]["rows"] > 4
    assert not any(said["early"]["findings"]) and said["early"]["rows"] == 0, "in the first seconds nothing happened"
    assert said["other"]["rows"] == 0 and said["other"]["findings"] == said["everything"]["findings"]
    assert (said["brokers"], said["broker"], said["topics"]) == (120, ["2", "2"], 0)
    assert said["worst"][1] == 90_000  # the minute, and a quarter of it on each side
    assert said["wide"], "the page scrolls sideways"


def test_what_somebody_did_is_marked_on_the_tracks_and_listed(tmp_path: Path) -> None:
    marks = [{"ts": made_up.START + 1_000 * n, "words": f"kill broker {n} <now>"} for n in (1, 2)]
    text = written(tmp_path, 3, marks=marks).read_text()
    parsed = Page(text)
    (lane,) = (t for t in parsed.tracks if t.get("data-marks") is not None)
    assert lane["aria-label"] == "what somebody did to the cluster"
    assert text.count('<path class="done" d="M1000 0V24M2000 0V24"/>') == 3, "on the strip of each partition"
    assert "kill broker 1 &lt;now&gt;</code>" in text and "kill broker 1 <now>" not in text
    told = json.loads(re.findall(r'id="pointed">(.*?)</script>', text, re.S)[0])
    assert told["marks"] == [[1000, "kill broker 1 <now>"], [2000, "kill broker 2 <now>"]]
    (tmp_path / "none").mkdir()
    assert 'class="done"' not in written(tmp_path / "none", 3).read_text()


#: Texts, and what they stand on.
READ = [("ink", "bg"), ("ink", "card"), ("soft", "bg"), ("soft", "card"), ("good", "card"), ("off", "card"),
        ("accent", "card"), ("crit", "crit-bg"), ("ink", "warn-bg"), ("ink", "info-bg")]  # fmt: skip


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_can_be_read_in_both_schemes(scheme: str) -> None:
    """At least 4.5 to 1, as WCAG 2 asks for."""
    css = (Path(figures.__file__).parent / "report.css").read_text()
    light, dark = (
        dict(re.findall(r"--([\w-]+):(#[0-9a-f]{3,6});", block)) for block in css.split("@media (prefers")[:2]
    )
    colours = light if scheme == "light" else light | dark
    assert {pair: round(contrast(colours[pair[0]], colours[pair[1]]), 1) for pair in READ
            if contrast(colours[pair[0]], colours[pair[1]]) < 4.5} == {}  # fmt: skip


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_limits_of_what_if_are_in_words(page: Path) -> None:
    text = page.read_text()
    assert "throttle_active" not in text and text.count("a throttle held up replicas that were out") >= 2


def test_each_limit_that_the_page_of_what_if_explains_has_words() -> None:
    docs = Path(__file__).parents[4] / "docs/replay-what-if.md"
    rows = docs.read_text().partition("| limit | meaning |")[2].partition("\n\n")[0]
    assert re.findall(r"^\| `(\w+)` \|", rows, re.M) == list(WORDS)
    assert in_words(["later", "overshoot", "no_fetches"]) == [WORDS["no_fetches"], WORDS["overshoot"], "later"]
