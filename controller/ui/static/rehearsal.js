// Rehearsals on a time line: a plot of counts over time, one slider for all, and what was so at that moment.

const LINES = [["offline", "--offline"], ["under_min_isr", "--under"], ["under_replicated", "--accent"], ["moving", "--moving"]];
const WORDS = { offline: "offline", under_min_isr: "under min ISR", under_replicated: "under-replicated", moving: "moving", left_bytes: "bytes to copy" };

export function clock(ms) {
  const s = Math.round(ms / 1000);
  const days = Math.floor(s / 86400);
  return `${days ? `${days}d ` : ""}${Math.floor(s / 3600) % 24}:${String(Math.floor(s / 60) % 60).padStart(2, "0")}:${String(s % 60).padStart(2, "0")}`;
}

export class Rehearsals {
  constructor(box, slider, output, make) {
    this.shown = [];
    this.box = box;
    this.slider = slider;
    this.output = output;
    this.make = make;
    slider.addEventListener("input", () => this.draw());
    new ResizeObserver(() => this.draw()).observe(box);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  // These and no others.
  show(all) {
    this.shown = [];
    this.box.replaceChildren();
    for (const data of all) this.add(data);
    this.draw();
  }

  add(data) {
    const make = this.make;
    const canvas = make("canvas", { role: "img" });
    const now = make("tbody");
    const brokers = make("tbody");
    const head = (...names) => make("thead", {}, make("tr", {}, ...names.map((n, i) => make("th", { scope: "col", class: i ? "n" : "" }, n))));
    const summary = data.summary;
    const ended = summary.is_over ? `ended after ${clock(summary.end_ms)}` : `not over after ${clock(summary.end_ms)}`;
    const column = make("div", { class: "rehearsal" },
      make("h3", {}, `${data.folder}: ${summary.name}`),
      make("p", { class: "quiet" }, `${ended}; ${summary.elections} elections (${summary.unclean_elections} unclean), ${summary.isr_changes} ISR changes`),
      canvas,
      make("table", {}, head("at this moment", "partitions"), now),
      make("div", { class: "scroll tall", tabindex: "0", role: "region", "aria-label": "Brokers at this moment" },
        make("table", {}, head("broker", "leaders", "link in", "link out", "disk", ...(isThrottled(data) ? ["throttle in", "throttle out"] : [])), brokers)));
    if (summary.warnings?.length) column.append(make("div", { class: "scroll tall", tabindex: "0", role: "region", "aria-label": "Warnings" },
      make("ul", { class: "plain warn" }, ...summary.warnings.map((text) => make("li", {}, text)))));
    this.box.append(column);
    this.shown.push({ data, canvas, now, brokers });
  }

  get endMs() {
    return Math.max(1, ...this.shown.map(({ data }) => data.summary.end_ms));
  }

  draw() {
    const at = (this.endMs * this.slider.value) / this.slider.max;
    this.output.textContent = clock(at);
    this.slider.setAttribute("aria-valuetext", clock(at));
    for (const shown of this.shown) {
      this.plot(shown, at);
      this.tell(shown, at);
    }
  }

  plot({ data, canvas }, at) {
    const width = canvas.clientWidth;
    const height = canvas.clientHeight;
    if (!width) return;
    const scale = Math.min(window.devicePixelRatio || 1, 2);
    canvas.width = width * scale;
    canvas.height = height * scale;
    const paper = canvas.getContext("2d");
    const style = getComputedStyle(document.documentElement);
    paper.scale(scale, scale);
    const times = data.timeline.at_ms;
    const top = Math.max(1, ...LINES.flatMap(([name]) => data.timeline[name]));
    const x = (ms) => (ms / this.endMs) * (width - 4) + 2;
    const y = (value) => height - 4 - (value / top) * (height - 22);
    paper.lineWidth = 1.6;
    for (const [name, colour] of LINES) {
      paper.strokeStyle = style.getPropertyValue(colour);
      paper.beginPath();
      data.timeline[name].forEach((value, n) => {
        if (n) paper.lineTo(x(times[n]), y(data.timeline[name][n - 1]));
        paper.lineTo(x(times[n]), y(value));
      });
      paper.stroke();
    }
    paper.fillStyle = style.getPropertyValue("--quiet");
    paper.font = "12px system-ui, sans-serif";
    paper.fillText(`at most ${top}`, 4, 12);
    paper.strokeStyle = style.getPropertyValue("--text");
    paper.beginPath();
    paper.moveTo(x(at), 0);
    paper.lineTo(x(at), height);
    paper.stroke();
    canvas.setAttribute("aria-label", `Partitions over time, at most ${top}: offline, under min ISR, under-replicated, moving`);
  }

  tell({ data, now, brokers }, at) {
    const make = this.make;
    const times = data.timeline.at_ms;
    const n = lastAt(times, at);
    const colours = Object.fromEntries(LINES);
    now.replaceChildren(...Object.entries(WORDS).map(([name, word]) => make("tr", {}, make("td", {}, name in colours ? make("span", { class: `swatch ${colours[name].slice(2)}` }) : null, word),
      make("td", { class: "n" }, n < 0 ? "" : name === "left_bytes" ? bytes(data.timeline[name][n]) : data.timeline[name][n]))));
    const rows = [];
    data.brokers.at_ms.forEach((time, k) => {
      if (n >= 0 && time === times[n]) rows.push(k);
    });
    const share = (value) => (value === null ? "" : `${Math.round(value * 100)} %`);
    brokers.replaceChildren(...rows.map((k) => make("tr", {}, make("td", {}, data.brokers.broker[k]),
      ...[data.brokers.leaders[k], share(data.brokers.link_in[k]), share(data.brokers.link_out[k]), share(data.brokers.disk[k]),
        ...(isThrottled(data) ? [share(data.brokers.follower_throttle[k]), share(data.brokers.leader_throttle[k])] : [])].map((text) => make("td", { class: "n" }, text)))));
  }
}

function isThrottled(data) {
  return (data.brokers.leader_throttle || []).some((value) => value !== null && value > 0);
}

function lastAt(times, at) {
  let low = -1;
  let high = times.length;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (times[middle] <= at) low = middle;
    else high = middle;
  }
  return low;
}

export function bytes(value) {
  if (value === null || value === undefined) return "";
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  let n = 0;
  while (value >= 1000 && n < units.length - 1) {
    value /= 1000;
    n += 1;
  }
  return `${value.toFixed(n && value < 100 ? 1 : 0)} ${units[n]}`;
}
