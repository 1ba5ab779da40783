// The page: keeps what the stream says by key, and draws the parts that a message changed.
import { Matrix, STATES, WORDS, stateOf } from "/static/matrix.js";
import { Rehearsals, bytes, clock } from "/static/rehearsal.js";

const state = new Map();
const topics = new Map();
const $ = (id) => document.getElementById(id);
let token = new URLSearchParams(location.hash.slice(1)).get("token");
if (token) history.replaceState(null, "", location.pathname);
let site = { actions: {}, why: false, rehearsals: [], report: false };

function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) if (value !== "") element.setAttribute(key, value);
  element.append(...children.filter((child) => child !== null && child !== undefined).map((c) => (c instanceof Node ? c : String(c))));
  return element;
}

function say(text) {
  $("said").textContent = text;
  clearTimeout(say.timer);
  say.timer = setTimeout(() => ($("said").textContent = ""), 6000);
}

// -- what comes ----------------------------------------------------------------------------------------------------

function follow() {
  const stream = new EventSource("/api/stream");
  stream.onopen = () => ($("link").textContent = "live");
  let isFirst = true;
  stream.onerror = () => {
    $("link").textContent = "no connection to kwob ui; trying again";
    isFirst = true;
    if (stream.readyState === EventSource.CLOSED) setTimeout(follow, 1000); // it was answered, but with no stream
  };
  stream.onmessage = (message) => {
    const changes = JSON.parse(message.data);
    if (isFirst) {
      state.clear();
      topics.clear();
    }
    take(changes, isFirst);
    isFirst = false;
  };
}

// What comes first after a connection is all there is: what it does not name is gone.
function take(changes, isAll) {
  let isTopic = isAll;
  for (const [key, value] of Object.entries(changes)) {
    if (key.startsWith("topic:")) {
      isTopic = true;
      if (value === null) topics.delete(key.slice(6));
      else topics.set(key.slice(6), value);
    } else if (value === null) state.delete(key);
    else state.set(key, value);
  }
  const has = (...names) => isAll || names.some((name) => Object.keys(changes).some((key) => key === name || key.startsWith(`${name}:`)));
  if (isTopic || has("moves", "read")) drawPartitions();
  if (isTopic || has("brokers", "processes", "disks", "flows", "faults", "controller", "office")) drawBrokers();
  if (has("moves", "throttles")) drawMoves();
  if (has("groups")) drawGroups();
  if (has("events")) drawEvents();
  if (has("notes")) drawNotes();
  drawTotals();
}

// -- brokers -------------------------------------------------------------------------------------------------------

function brokerRows() {
  const rows = new Map();
  const processes = state.get("processes");
  for (const [id, broker] of Object.entries(state.get("brokers") || {})) rows.set(id, { ...broker, alive: true });
  for (const [id, alive] of Object.entries(processes?.brokers || {})) {
    const known = rows.get(id);
    rows.set(id, { rack: processes.racks[id], ...known, alive: alive && (known !== undefined || !state.has("brokers")) });
  }
  for (const partitions of topics.values())
    for (const [, replicas] of partitions) for (const id of replicas) if (!rows.has(String(id))) rows.set(String(id), { alive: false });
  return new Map([...rows].sort(([a], [b]) => a - b));
}

function counts() {
  const found = new Map();
  for (const partitions of topics.values())
    for (const [leader, replicas] of partitions) {
      for (const id of replicas) {
        if (!found.has(id)) found.set(id, { leaders: 0, replicas: 0 });
        found.get(id).replicas += 1;
      }
      if (found.has(leader)) found.get(leader).leaders += 1;
    }
  return found;
}

function drawBrokers() {
  const box = $("racks");
  const focus = document.activeElement?.dataset?.key;
  const racks = new Map();
  const of = counts();
  for (const [id, row] of brokerRows()) {
    const rack = row.rack || "";
    if (!racks.has(rack)) racks.set(rack, []);
    racks.get(rack).push(brokerCard(id, row, of.get(Number(id))));
  }
  box.replaceChildren(...[...racks].flatMap(([rack, cards]) => [make("h3", {}, rack ? `rack ${rack}` : "no rack"), ...cards]));
  drawControllers();
  const faults = state.get("faults") || [];
  $("faults").replaceChildren(...(faults.length ? [make("h3", {}, "Faults in force"),
    make("ul", {}, ...faults.map((f) => make("li", {}, `${f.id || ""} ${f.kind}, brokers ${f.whom}${f.what ? `: ${f.what}` : ""}`))),
    buttons(["faults.heal"], 0, "faults")].filter(Boolean) : []));
  if (focus) document.querySelector(`[data-key="${CSS.escape(focus)}"]`)?.focus();
}

function brokerCard(id, row, count) {
  const card = make("div", { class: row.alive ? "broker" : "broker dead", "data-broker": id, "data-alive": String(row.alive) },
    make("p", { class: "name" }, `broker ${id} `, make("span", { class: row.alive ? "quiet" : "bad" }, row.alive ? "up" : "down")),
    make("p", { class: "quiet" }, row.host ? `${row.host}:${row.port}, ` : "", `${count?.leaders || 0} leaders, ${count?.replicas || 0} replicas`));
  for (const disk of state.get(`disks:${id}`) || []) {
    const name = disk.path.split("/").slice(-2).join("/");
    const size = disk.error ? `failed: ${disk.error}` : `${bytes(disk.bytes)} in ${disk.replicas} replicas`;
    const meter = disk.total ? make("meter", { min: 0, max: disk.total, high: disk.total * 0.9, value: disk.total - disk.usable, "aria-label": `${name}: volume in use` }) : null;
    card.append(make("div", { class: "disk", title: disk.path }, make("span", {}, name), make("span", { class: disk.error ? "bad" : "" }, size), meter));
  }
  card.append(...links(id));
  const names = row.alive ? Object.keys(site.actions).filter((n) => n.startsWith("broker.") && n !== "broker.start") : ["broker.start"];
  card.append(...[buttons(names, id, `broker ${id}`)].filter(Boolean));
  return card;
}

function links(id) {
  const flows = state.get(`flows:${id}`);
  if (!flows) return [];
  const sum = (rates) => Object.values(rates).reduce((a, b) => a + b, 0);
  const each = (rates) => Object.entries(rates).map(([peer, rate]) => `${peer}: ${bytes(rate)}/s`).join(", ");
  const line = (text) => (text ? make("p", { class: "peers" }, text) : null);
  const box = make("details", {}, make("summary", { "data-key": `links/${id}` }, `link in ${bytes(sum(flows.from) + flows.clients)}/s, out to brokers ${bytes(sum(flows.to))}/s`),
    line(flows.clients && `from clients ${bytes(flows.clients)}/s`), line(each(flows.from) && `from broker ${each(flows.from)}`),
    line(each(flows.to) && `to broker ${each(flows.to)}`));
  return [kept(box, `links/${id}`)];
}

function drawControllers() {
  const office = state.get("office");
  const processes = state.get("processes")?.controllers || {};
  const rows = Object.entries(processes).map(([id, alive]) => make("div", { class: alive ? "broker" : "broker dead", "data-controller": id },
    make("p", { class: "name" }, `controller ${id} `, make("span", { class: alive ? "quiet" : "bad" },
      alive ? (office && String(office.controller) === id ? `active, epoch ${office.epoch}` : "standby") : "down")),
    buttons([alive ? "controller.kill" : "controller.start"], id, `controller ${id}`)));
  $("controllers").replaceChildren(...rows);
}

const opened = new Set();

function buttons(names, id, about) {
  const box = make("div", { class: "buttons" });
  for (const name of names) {
    if (!token || !(name in site.actions)) continue;
    const button = make("button", { type: "button", "aria-label": `${about}: ${site.actions[name]}`, "data-key": `${name}/${id}` }, site.actions[name]);
    button.addEventListener("click", () => act(name, Number(id)));
    box.append(button);
  }
  if (box.childElementCount < 3) return box.childElementCount ? box : null;
  return kept(make("details", {}, make("summary", { "data-key": `break/${id}` }, "break it"), box), about);
}

// A part that is open stays so when it is drawn again.
function kept(details, name) {
  details.open = opened.has(name);
  details.addEventListener("toggle", () => (details.open ? opened.add(name) : opened.delete(name)));
  return details;
}

async function act(action, id) {
  say(`${action} ${id || ""} …`);
  try {
    const answer = await fetch("/api/actions", { method: "POST", headers: { "x-kwob-token": token, "content-type": "application/json" }, body: JSON.stringify({ action, id }) });
    say(await answer.text());
  } catch {
    say("kwob ui does not answer");
  }
}

// -- partitions ----------------------------------------------------------------------------------------------------

const matrix = new Matrix($("matrix"), showWhy, (cell) => ($("cell").textContent = inWords(cell)));

function cells() {
  const moving = state.get("moves")?.partitions || {};
  const found = [];
  for (const name of [...topics.keys()].sort()) {
    topics.get(name).forEach((partition, place) => {
      const full = `${name}-${partition[4] ?? place}`; // its number is there where it is not its place
      found.push({ name: full, topic: name, partition, leader: partition[0], state: stateOf(partition, full in moving) });
    });
  }
  return found;
}

function drawPartitions() {
  const all = cells();
  drawPartitions.count = Object.fromEntries(STATES.map((s) => [s, 0]));
  for (const cell of all) drawPartitions.count[cell.state] += 1;
  const text = $("filter").value.trim();
  const onlyTroubled = $("troubled").checked;
  matrix.show(all.filter((c) => c.topic.includes(text) && (!onlyTroubled || c.state !== "ok")), $("colour").value);
  $("legend").replaceChildren(...STATES.map((s) => make("span", {}, make("span", { class: `swatch ${s}` }), `${WORDS[s]}: ${drawPartitions.count[s]}`)));
  const wrong = all.filter((c) => c.state !== "ok");
  $("wrong-count").textContent = wrong.length;
  const list = wrong.slice(0, 100).map((cell) => {
    const button = make("button", { type: "button" }, inWords(cell));
    button.addEventListener("click", () => showWhy(cell));
    return make("li", {}, button);
  });
  if (wrong.length > 100) list.push(make("li", {}, `and ${wrong.length - 100} more`));
  if ($("wrong-box").open || !wrong.length) $("wrong").replaceChildren(...list);
  $("wrong-box").ontoggle = () => $("wrong-box").open && $("wrong").replaceChildren(...list);
}

function inWords({ name, partition: [leader, replicas, isr], state: is }) {
  return `${name}: ${WORDS[is]}; leader ${leader < 0 ? "none" : leader}, replicas ${replicas.join(" ")}, ISR ${isr.join(" ") || "none"}`;
}

async function showWhy(cell) {
  const [leader, replicas, isr, epoch] = cell.partition;
  $("why-title").textContent = cell.name;
  const facts = { state: WORDS[cell.state], leader: leader < 0 ? "none" : leader, "leader epoch": epoch < 0 ? "not known" : epoch, replicas: replicas.join(", "), ISR: isr.join(", ") || "none" };
  $("why-facts").replaceChildren(...Object.entries(facts).flatMap(([k, v]) => [make("dt", {}, k), make("dd", {}, v)]));
  $("why-text").textContent = site.why ? "asking the brokers …" : "";
  if (!$("why").open) $("why").showModal();
  if (!site.why) return;
  try {
    const answer = await fetch(`/api/why?target=${encodeURIComponent(cell.name)}`);
    $("why-text").textContent = await answer.text();
  } catch {
    $("why-text").textContent = "kwob ui does not answer";
  }
}

// -- the rest ------------------------------------------------------------------------------------------------------

function drawMoves() {
  const moves = state.get("moves");
  if (!moves) return $("moves-body").replaceChildren(make("p", { class: "quiet" }, "nothing is being moved"));
  const rate = moves.bytes_per_s;
  const left = moves.seconds_left;
  const total = moves.done + moves.left;
  return $("moves-body").replaceChildren(
    make("p", {}, `${moves.done} of ${total} partitions done; ${bytes(moves.bytes_done)} of ${bytes(moves.bytes_total)} copied`,
      rate === null ? "" : `, ${bytes(rate)}/s`, left === null || left === undefined ? "" : `, about ${clock(left * 1000)} left`),
    make("progress", { max: Math.max(1, moves.bytes_total), value: moves.bytes_done, "aria-label": "bytes copied" }),
    throttleTable(),
    moves.waits_for.length ? make("h3", {}, "What each partition waits for") : "",
    make("div", { class: "scroll tall", tabindex: "0", role: "region", "aria-label": "What each partition waits for" },
      make("ul", { class: "plain" }, ...moves.waits_for.map((text) => make("li", {}, text)),
        moves.left > moves.waits_for.length ? make("li", { class: "quiet" }, `and ${moves.left - moves.waits_for.length} more`) : null)));
}

// Of each broker: bytes per second of what moves, in as a follower and out as a leader, beside the limits that are set.
function throttleTable() {
  const rows = Object.entries(state.get("throttles") || {});
  if (!rows.some(([, row]) => row.in_limit !== null || row.out_limit !== null)) return make("p", { class: "quiet" }, "no throttle is set");
  const cell = (about, rate, limit) => make("td", {}, limit === null ? `${bytes(rate)}/s, no limit` : `${bytes(rate)}/s of ${bytes(limit)}/s`,
    limit === null ? null : make("meter", { min: 0, max: limit || 1, value: Math.min(rate, limit), "aria-label": about }));
  const heads = ["broker", "copied to it", "copied from it"].map((text) => make("th", { scope: "col" }, text));
  return make("div", {}, make("h3", {}, "Throttles in use, mean of 30 s"), make("div", { class: "scroll tall", tabindex: "0", role: "region", "aria-label": "Throttles in use" },
    make("table", { id: "throttles" }, make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...rows.map(([broker, row]) => make("tr", {}, make("td", {}, broker),
      cell(`throttle of broker ${broker} as a follower`, row.in, row.in_limit), cell(`throttle of broker ${broker} as a leader`, row.out, row.out_limit)))))));
}

function drawGroups() {
  const groups = state.get("groups");
  const rows = Object.entries(groups?.rows || {});
  if (!rows.length) return $("groups-body").replaceChildren(make("p", { class: "quiet" }, "there are no groups"));
  const table = make("table", {}, make("thead", {}, make("tr", {}, ...["group", "state", "members", "lag", "worst partition"].map((t, n) => make("th", { scope: "col", class: n === 2 || n === 3 ? "n" : "" }, t)))),
    make("tbody", {}, ...rows.map(([name, row]) => {
      const worst = Object.entries(row.partitions).sort((a, b) => b[1] - a[1])[0];
      return make("tr", {}, make("td", { class: "name" }, name), make("td", {}, row.state), make("td", { class: "n" }, row.members ?? ""), make("td", { class: "n" }, row.lag ?? ""), make("td", {}, worst && worst[1] ? `${worst[0]}: ${worst[1]}` : ""));
    })));
  const more = groups.count - rows.length;
  return $("groups-body").replaceChildren(make("div", { class: "scroll tall", tabindex: "0", role: "region", "aria-label": "Consumer groups" }, table), more > 0 ? make("p", {}, `and ${more} more groups`) : "");
}

function drawEvents() {
  const text = $("events-filter").value.trim();
  const from = $("events-from").value;
  const rows = (state.get("events") || []).filter((e) => (e.process || "").startsWith(from) && (!text || `${e.event} ${e.keys}`.includes(text)));
  $("events").hidden = !state.has("events");
  $("events-body").replaceChildren(...rows.slice(-100).reverse().map((e) => make("tr", {}, make("td", {}, e.at), make("td", {}, e.process || ""),
    make("td", { class: e.level === "error" ? "bad" : e.level === "warning" ? "warn" : "" }, e.event),
    make("td", { class: "n", "data-of": "queue, ms" }, e.queue_ms ?? ""), make("td", { class: "n", "data-of": "process, ms" }, e.process_ms ?? ""), make("td", { class: "what" }, e.keys))));
}

function drawNotes() {
  const notes = Object.entries(state.get("notes") || {});
  $("notes").hidden = !notes.length;
  $("notes").textContent = notes.map(([about, text]) => `${about}: ${text}`).join(" · ");
}

function drawTotals() {
  const rows = [...brokerRows().values()];
  const count = drawPartitions.count || {};
  const up = rows.filter((row) => row.alive).length;
  const told = state.get("office");
  const office = told && state.get("processes")?.controllers?.[told.controller] !== false ? told : null; // a dead one holds none
  const facts = [
    ["controller", office ? `${office.controller} (epoch ${office.epoch})` : (told ? null : state.get("controller")) ?? "none", ""],
    ["brokers up", `${up} of ${rows.length}`, up < rows.length ? "bad" : ""],
    ["partitions", STATES.reduce((sum, s) => sum + (count[s] || 0), 0), ""],
    ["offline", count.offline || 0, count.offline ? "bad" : ""],
    ["under-replicated", count.under || 0, count.under ? "warn" : ""],
    ["moving", count.moving || 0, count.moving ? "moves" : ""],
  ];
  if (state.size) $("totals").replaceChildren(...facts.map(([k, v, c]) => make("div", {}, make("dt", {}, k), make("dd", { class: c }, v))));
}

async function chooseRehearsals(rehearsals, names) {
  const one = $("rehearsal-one");
  const other = $("rehearsal-other");
  const options = () => names.map((name, n) => make("option", { value: String(n) }, name));
  one.append(...options());
  other.append(make("option", { value: "none" }, "nothing"), ...options());
  other.value = names.length > 1 ? "1" : "none";
  $("rehearsal-beside").hidden = names.length < 2;
  let turn = 0;
  const show = async () => {
    const mine = (turn += 1);
    const chosen = [one.value, other.value].filter((n) => n !== "none");
    const answers = await Promise.all(chosen.map((n) => fetch(`/api/rehearsals/${n}`).catch(() => null)));
    const found = [];
    for (const answer of answers) {
      if (answer?.ok) found.push(await answer.json());
      else say(answer ? await answer.text() : "kwob ui does not answer");
    }
    if (mine === turn) rehearsals.show(found); // else another choice was made meanwhile
  };
  for (const select of [one, other]) select.addEventListener("input", show);
  await show();
}

// -- start ---------------------------------------------------------------------------------------------------------

async function start() {
  site = await (await fetch("/api/site")).json();
  document.querySelectorAll('[data-of="cluster"]').forEach((section) => (section.hidden = !site.why));
  for (const id of ["filter", "colour", "troubled"]) $(id).addEventListener("input", drawPartitions);
  for (const id of ["events-filter", "events-from"]) $(id).addEventListener("input", drawEvents);
  document.querySelectorAll("main form").forEach((form) => form.addEventListener("submit", (event) => event.preventDefault()));
  if (site.rehearsals.length) {
    $("rehearsals").hidden = false;
    await chooseRehearsals(new Rehearsals($("rehearsal-columns"), $("slider"), $("slider-at"), make), site.rehearsals);
  }
  if (site.report) {
    $("report").hidden = false;
    $("report").append(make("iframe", { src: "/report", sandbox: "allow-scripts", title: "Replay report" }));
  }
  if (site.why) follow();
  else $("link").textContent = "no cluster, only files";
}

start();
