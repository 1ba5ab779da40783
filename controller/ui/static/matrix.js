// All partitions as squares on one canvas: laid out when topics or the width change, painted colour by colour.
// A partition is [leader, replicas, isr, leader epoch], and its number where that is not its place; what state it is in is decided here, in `stateOf`.

export const STATES = ["ok", "moving", "under", "offline"];
export const WORDS = { ok: "in order", moving: "moving", under: "under-replicated", offline: "offline: no leader" };

export function stateOf(partition, isMoving) {
  const [leader, replicas, isr] = partition;
  if (leader < 0) return "offline";
  if (isMoving) return "moving";
  return isr.length < replicas.length ? "under" : "ok";
}

const GAP = 1;

export class Matrix {
  constructor(canvas, onPick, onPoint) {
    this.canvas = canvas;
    this.cells = [];
    this.colours = {};
    this.cursor = -1;
    this.onPoint = onPoint;
    this.waiting = false;
    canvas.addEventListener("click", (event) => this.pick(this.at(event), onPick));
    canvas.addEventListener("mousemove", (event) => this.point(this.at(event)));
    canvas.addEventListener("keydown", (event) => this.key(event, onPick));
    new ResizeObserver(() => this.later()).observe(canvas.parentElement);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.later());
  }

  // cells: [{name, partition, state, leader}] in the order of topics.
  show(cells, colourBy) {
    this.cells = cells;
    this.colourBy = colourBy;
    if (this.cursor >= cells.length) this.cursor = -1;
    this.later();
  }

  later() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.paint();
    });
  }

  paint() {
    const width = this.canvas.parentElement.clientWidth;
    if (!width) return;
    const count = this.cells.length;
    this.size = count > 40000 ? 5 : count > 4000 ? 8 : count > 600 ? 12 : 18;
    this.columns = Math.max(1, Math.floor(width / this.size));
    const rows = Math.max(1, Math.ceil(count / this.columns));
    const scale = Math.min(window.devicePixelRatio || 1, 2);
    const height = rows * this.size;
    this.canvas.width = Math.round(width * scale);
    this.canvas.height = Math.round(height * scale);
    this.canvas.style.height = `${height}px`;
    const paper = this.canvas.getContext("2d");
    paper.scale(scale, scale);
    const style = getComputedStyle(document.documentElement);
    const byColour = new Map();
    this.cells.forEach((cell, number) => {
      const colour = this.colourBy === "leader" ? leaderColour(cell.leader, style) : style.getPropertyValue(`--${cell.state}`);
      if (!byColour.has(colour)) byColour.set(colour, []);
      byColour.get(colour).push(number);
    });
    const side = this.size - GAP;
    for (const [colour, numbers] of byColour) {
      paper.fillStyle = colour;
      for (const number of numbers) {
        paper.fillRect((number % this.columns) * this.size, Math.floor(number / this.columns) * this.size, side, side);
      }
    }
    if (this.cursor >= 0) {
      paper.strokeStyle = style.getPropertyValue("--text");
      paper.lineWidth = 2;
      const x = (this.cursor % this.columns) * this.size;
      paper.strokeRect(x + 1, Math.floor(this.cursor / this.columns) * this.size + 1, this.size - 2, this.size - 2);
    }
    this.canvas.dataset.drawn = String(count);
    this.canvas.dataset.at = String(Math.round(performance.now()));
  }

  at(event) {
    const box = this.canvas.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left) / this.size);
    const number = Math.floor((event.clientY - box.top) / this.size) * this.columns + column;
    return column < this.columns && number < this.cells.length ? number : -1;
  }

  point(number) {
    if (number < 0 || number === this.cursor) return;
    this.cursor = number;
    this.onPoint(this.cells[number]);
    this.later();
  }

  pick(number, onPick) {
    this.point(number);
    if (number >= 0) onPick(this.cells[number]);
  }

  key(event, onPick) {
    const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: this.columns, ArrowUp: -this.columns };
    if (event.key in steps) {
      const next = this.cursor < 0 ? 0 : this.cursor + steps[event.key];
      if (next >= 0 && next < this.cells.length) this.point(next);
    } else if (event.key === "Home") this.point(0);
    else if (event.key === "End") this.point(this.cells.length - 1);
    else if ((event.key === "Enter" || event.key === " ") && this.cursor >= 0) onPick(this.cells[this.cursor]);
    else return;
    event.preventDefault();
  }
}

function leaderColour(leader, style) {
  return leader < 0 ? style.getPropertyValue("--offline") : `hsl(${(leader * 137) % 360} 55% 55%)`;
}
