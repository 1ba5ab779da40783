"use strict";
// One window of time for all tracks: zooming sets the viewBox of each; what is drawn stays as it is.
(() => {
  const told = JSON.parse(document.getElementById("pointed").textContent);
  const time = document.getElementById("time"), area = document.getElementById("tracks");
  const tracks = [...time.querySelectorAll("svg.track")], axes = [...time.querySelectorAll(".axis")];
  const line = document.getElementById("told"), chosen = document.getElementById("chosen");
  const LEAST_MS = 20;
  let from = 0, width = told.width;

  const clock = (ms, fine) => new Date(told.from + ms).toISOString().slice(11, fine ? 23 : 19);
  const took = ms => ms < 1000 ? `${Math.round(ms)} ms` : ms < 60000 ? `${(ms / 1000).toFixed(1)} s`
    : ms < 3600000 ? `${Math.floor(ms / 60000)} min ${Math.floor(ms / 1000) % 60} s`
    : `${Math.floor(ms / 3600000)} h ${Math.floor(ms / 60000) % 60} min`;

  function show(newFrom, newWidth) {
    width = Math.min(told.width, Math.max(Math.min(LEAST_MS, told.width), newWidth));
    from = Math.min(told.width - width, Math.max(0, newFrom));
    for (const svg of tracks) svg.setAttribute("viewBox", `${from} 0 ${width} ${svg.dataset.height}`);
    const marks = area.clientWidth > 560 ? 6 : 3;
    for (const axis of axes) axis.replaceChildren(...Array.from({ length: marks + 1 }, (_, i) => {
      const mark = document.createElement("span");
      mark.style.left = `${100 * i / marks}%`;
      mark.textContent = clock(from + width * i / marks, width < 20000);
      return mark;
    }));
    const all = width === told.width;
    for (const id of ["out", "earlier", "later", "all"]) document.getElementById(id).disabled = all;
    time.dataset.from = Math.round(from);
    time.dataset.width = Math.round(width);
    since.value = clock(from, true);
    until.value = clock(from + width, true);
    filter();
    remember();
  }

  // -- what is looked at: a stretch of time, a topic, a broker. It stands in the address: #t=FROM-TO&topic=TEXT&broker=ID, ms since the start of the trace
  const filters = document.getElementById("filters"), topic = document.getElementById("topic");
  const broker = document.getElementById("broker"), matches = document.getElementById("matches");
  const since = document.getElementById("since"), until = document.getElementById("until");
  const timed = [...document.querySelectorAll("ol.findings > li[data-from]")], tabled = [...document.querySelectorAll("tr[data-name]")];
  const rows = [...time.querySelectorAll(".strip-row")];
  let ready = false;
  function remember() {
    if (!ready) return;
    const words = new URLSearchParams();
    if (width < told.width) words.set("t", `${Math.round(from)}-${Math.round(from + width)}`);
    if (topic.value) words.set("topic", topic.value);
    if (broker.value) words.set("broker", broker.value);
    try { history.replaceState(null, "", words.size || `${words}` ? `#${words}` : location.pathname + location.search); } catch { /* a file may not change its address */ }
  }
  function filter() {
    let left = 0;
    rows.forEach((row, i) => {
      const strip = told.strips[i];
      const fits = strip.name.includes(topic.value.trim()) && (!broker.value || strip.changes.some(
        change => change[1].split(" ").includes(broker.value) || String(change[2]) === broker.value));
      row.hidden = !fits;
      left += fits;
    });
    filterTables();
    matches.textContent = left === rows.length ? "" : `${left} of ${rows.length} partitions`;
    const within = row => +row.dataset.to >= from && +row.dataset.from <= from + width;
    for (const row of timed) row.classList.toggle("elsewhere", !within(row));
    for (const row of tabled) row.hidden = !(within(row) && row.dataset.name.includes(topic.value.trim())
      && (!broker.value || row.dataset.brokers.split(" ").includes(broker.value)));
  }
  // HH:MM:SS.mmm as ms since the start; a time before the start's is of the next day
  function typed(text) {
    const parts = /^(\d{1,2}):(\d{2})(?::(\d{2})(?:\.(\d{1,3}))?)?$/.exec(text.trim());
    if (!parts) return null;
    const day = 86400000, of = ((+parts[1] * 60 + +parts[2]) * 60 + +(parts[3] || 0)) * 1000 + +(parts[4] || "").padEnd(3, "0");
    const ms = ((of - told.from % day) % day + day) % day;
    return ms > told.width && ms - day > -60000 ? 0 : ms;
  }
  for (const field of [since, until]) field.addEventListener("change", () => {
    const start = typed(since.value), end = typed(until.value);
    if (start === null || end === null || end <= start) show(from, width); else show(start, end - start);
  });
  // Tables and lanes of brokers follow: a row is shown if its topic, its broker and its time fit, as far as it has them.
  const tagged = [...document.querySelectorAll(".filtered tr[data-topic], .filtered tr[data-broker], .filtered tr[data-brokers], .filtered tr[data-from], .row[data-broker]")];
  function filterTables() {
    for (const row of tagged) {
      const of = row.dataset, who = of.broker ? [of.broker] : of.brokers !== undefined ? of.brokers.split(" ") : null;
      row.hidden = !((of.topic === undefined || of.topic.includes(topic.value.trim()))
        && (who === null || !broker.value || who.includes(broker.value))
        && (of.from === undefined || (+of.from <= from + width && +of.to >= from)));
    }
  }
  function recall() {
    const words = new URLSearchParams(location.hash.slice(1)), span = /^(\d+)-(\d+)$/.exec(words.get("t") || "");
    topic.value = words.get("topic") || "";
    broker.value = words.get("broker") || "";
    filter();
    if (span) show(+span[1], Math.max(LEAST_MS, span[2] - span[1])); else show(0, told.width);
  }
  for (const field of [topic, broker]) field.addEventListener("input", () => { filter(); remember(); });
  filters.addEventListener("submit", event => event.preventDefault());
  for (const link of document.querySelectorAll("a.show")) link.addEventListener("click", event => {
    event.preventDefault();
    const start = +link.dataset.from, took = Math.max(LEAST_MS, link.dataset.to - start);
    show(start - took / 4, took * 1.5);
    time.scrollIntoView();
  });
  const zoom = (factor, at = from + width / 2) => show(at - (at - from) * factor, width * factor);
  const move = share => show(from + share * width, width);

  // -- what is pointed at
  function lastAt(changes, ms) {
    let low = 0, high = changes.length;
    while (low < high) { const mid = (low + high) >> 1; if (changes[mid][0] <= ms) low = mid + 1; else high = mid; }
    return changes[low - 1];
  }
  function say(svg, ms) {
    let text = clock(ms, true);
    if (svg.dataset.strip !== undefined) {
      const strip = told.strips[svg.dataset.strip], change = lastAt(strip.changes, ms);
      text += ` · ${strip.name}` + (change ? `: ISR ${change[1].replaceAll(" ", ", ") || "empty"}, leader ${change[2]}, epoch ${change[3]}, since ${clock(change[0], true)}` : "");
    } else if (svg.dataset.membership !== undefined) {
      const of = told.memberships[svg.dataset.membership], n = of.values[Math.floor(ms / told.piece)] || 0;
      text += ` · ${of.name}: missing from ${n < 10 ? +n.toFixed(1) : Math.round(n)} of the ISRs of ${of.hosted} partitions on average within ${took(told.piece)}`;
    } else if (svg.dataset.terms !== undefined) {
      const term = lastAt(told.terms, ms);
      text += term ? ` · controller ${term[1]}, epoch ${term[2]}, since ${clock(term[0], true)}` : " · nothing tells who was the controller";
    } else if (svg.dataset.marks !== undefined) {
      const near = told.marks.filter(mark => Math.abs(mark[0] - ms) <= width / 80).sort((a, b) => Math.abs(a[0] - ms) - Math.abs(b[0] - ms));
      text += near.length ? ` · ${clock(near[0][0], true)}: ${near[0][1]}` + (near.length > 1 ? ` (and ${near.length - 1} more nearby)` : "") : " · nothing was done here";
    } else if (svg.dataset.flaps !== undefined) {
      const of = told.flaps[svg.dataset.flaps], n = of.buckets[Math.floor(ms / told.bucket)] || 0;
      text += ` · ${of.name}: ${n} flap${n === 1 ? "" : "s"} within ${took(told.bucket)}`;
    } else if (svg.dataset.lane !== undefined) {
      const lane = told.lanes[svg.dataset.lane], now = lane.pieces.filter(piece => piece[0] <= ms && ms <= piece[1]);
      text += ` · ${lane.name}: ` + (now.map(piece => `${piece[2]} for ${took(piece[1] - piece[0])}`).join(", ") || "up");
    } else if (svg.dataset.what) text += ` · ${svg.dataset.what}`;
    line.textContent = text;
  }

  // -- pointers: a mouse chooses a range by dragging; fingers drag and pinch
  const fingers = new Map();
  let start = null;
  const box = () => tracks[0].getBoundingClientRect();
  const at = x => { const b = box(); return from + width * Math.min(1, Math.max(0, (x - b.left) / b.width)); };
  const onTrack = event => event.target.closest && event.target.closest("svg.track");

  area.addEventListener("pointerdown", event => {
    if (!onTrack(event) || (event.pointerType === "mouse" && event.button !== 0)) return;
    fingers.set(event.pointerId, event.clientX);
    area.setPointerCapture(event.pointerId);
    start = { x: event.clientX, ms: at(event.clientX), from, width, mouse: event.pointerType === "mouse", gap: spread() };
    say(onTrack(event), start.ms);
  });
  area.addEventListener("pointermove", event => {
    const under = document.elementFromPoint(event.clientX, event.clientY);
    const svg = under && under.closest && under.closest("svg.track");
    if (!fingers.size) { if (svg) say(svg, at(event.clientX)); return; }
    if (!fingers.has(event.pointerId) || !start) return;
    fingers.set(event.pointerId, event.clientX);
    const b = box();
    if (start.mouse) {
      const outer = area.getBoundingClientRect();
      const left = Math.max(b.left, Math.min(start.x, event.clientX)), right = Math.min(b.right, Math.max(start.x, event.clientX));
      chosen.style.display = right - left > 4 ? "block" : "none";
      chosen.style.left = `${left - outer.left}px`;
      chosen.style.width = `${right - left}px`;
    } else if (fingers.size === 2 && start.gap > 0) {
      const now = Math.max(8, spread()), middle = mid(), newWidth = start.width * start.gap / now;
      show(start.ms - newWidth * (middle - b.left) / b.width, newWidth);
    } else if (fingers.size === 1) show(start.from - start.width * (event.clientX - start.x) / b.width, start.width);
  });
  const spread = () => { const xs = [...fingers.values()]; return xs.length === 2 ? Math.abs(xs[0] - xs[1]) : 0; };
  const mid = () => { const xs = [...fingers.values()]; return xs.reduce((a, b) => a + b, 0) / xs.length; };
  area.addEventListener("pointerdown", () => {
    if (fingers.size === 2) start = { ...start, ms: at(mid()), from, width, gap: spread(), mouse: false };
  });
  const lift = event => {
    if (!fingers.delete(event.pointerId) || !start) return;
    if (start.mouse && event.type === "pointerup" && Math.abs(event.clientX - start.x) > 4) {
      const end = at(event.clientX);
      show(Math.min(start.ms, end), Math.abs(end - start.ms));
    }
    chosen.style.display = "none";
    const left = [...fingers.values()][0];
    start = left === undefined ? null : { x: left, ms: at(left), from, width, mouse: false, gap: 0 };
  };
  area.addEventListener("pointerup", lift);
  area.addEventListener("pointercancel", lift);
  area.addEventListener("dblclick", event => { if (onTrack(event)) show(0, told.width); });
  area.addEventListener("wheel", event => {
    if (!onTrack(event)) return;
    if (event.ctrlKey || event.metaKey) { event.preventDefault(); zoom(Math.exp(event.deltaY / 300), at(event.clientX)); }
    else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) { event.preventDefault(); move((event.deltaX || event.deltaY) / 900); }
  }, { passive: false });

  // -- keys and buttons
  const keys = { "+": () => zoom(.5), "=": () => zoom(.5), "-": () => zoom(2), "ArrowLeft": () => move(-.25), "ArrowRight": () => move(.25), "Home": () => show(0, told.width), "0": () => show(0, told.width) };
  time.addEventListener("keydown", event => {
    if (event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  });
  for (const [id, does] of Object.entries({ in: () => zoom(.5), out: () => zoom(2), earlier: () => move(-.5), later: () => move(.5), all: () => show(0, told.width) }))
    document.getElementById(id).addEventListener("click", does);
  addEventListener("resize", () => show(from, width));
  filters.hidden = false;
  recall();
  ready = true;
  addEventListener("hashchange", recall);
})();
