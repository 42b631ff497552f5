"use strict";
// The timeline of a trace. Each thread has its changes in order, and sums of the time that it has
// held and waited up to each: how much of a column of pixels is what follows from two look-ups,
// however many changes lie in it. So a frame takes as long for five million events as for five.

const report = JSON.parse(document.getElementById("report").textContent);
const canvas = document.getElementById("canvas");
const tip = document.getElementById("tip");
const LABELS = 170, AXIS = 26, ROW = 22, GAP = 4, LANE = 13, FEW_ARROWS = 400;
const MOST_ROWS = 60;

const state = { process: 0, from: 0, to: 1, chosen: null };
let picture = null; // What is shown: rows, lanes, hand-offs and asks of one process.

async function unpack(number) {
  const text = document.getElementById("data-" + number).textContent;
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

function decode(bytes) {
  let at = 0;
  const next = () => {
    let number = 0, scale = 1, byte;
    do {
      byte = bytes[at++];
      number += (byte & 127) * scale;
      scale *= 128;
    } while (byte > 127);
    return number;
  };
  const threads = new Map();
  for (let left = next(); left > 0; left--) {
    const index = next(), count = next();
    const times = new Float64Array(count + 1), does = new Uint8Array(count + 1);
    const cores = new Uint16Array(count + 1);
    const held = new Float64Array(count + 1), waited = new Float64Array(count + 1);
    let now = 0;
    for (let place = 1; place <= count; place++) {
      const length = next(), what = next(), was = does[place - 1];
      now += length;
      times[place] = now;
      does[place] = what & 3;
      cores[place] = what >> 2;
      held[place] = held[place - 1] + (was === 2 ? length : 0);
      waited[place] = waited[place - 1] + (was === 1 ? length : 0);
    }
    threads.set(index, { index, times, does, cores, held, waited });
  }
  const moments = () => {
    const count = next(), made = { times: new Float64Array(count), threads: new Uint16Array(count) };
    for (let place = 0, now = 0; place < count; place++) {
      now += next();
      made.times[place] = now;
      made.threads[place] = next();
    }
    return made;
  };
  return { threads, acquisitions: moments(), asks: moments() };
}

// The last place whose time is not after `at`.
function find(times, at, low = 0) {
  let high = times.length;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (times[middle] <= at) low = middle; else high = middle;
  }
  return low;
}

// How long a thread had held, or waited, by `at`.
function sum(thread, sums, what, at, place) {
  return sums[place] + (thread.does[place] === what ? at - thread.times[place] : 0);
}

// Holds by core, in order, each with the row of the thread that holds.
function lanes(rows, acquisitions) {
  const counts = new Map();
  for (const row of rows) {
    for (let place = 1; place < row.times.length; place++) {
      if (row.does[place] === 2 && row.cores[place]) counts.set(row.cores[place], (counts.get(row.cores[place]) ?? 0) + 1);
    }
  }
  const made = new Map([...counts].sort((one, other) => one[0] - other[0]).map(([core, count]) => [core, {
    core: core - 1, filled: 0, times: new Float64Array(count), ends: new Float64Array(count),
    who: new Uint16Array(count), sums: new Float64Array(count + 1),
  }]));
  const numbers = new Map(rows.map((row, number) => [row.index, number]));
  const cursors = new Uint32Array(rows.length);
  for (const thread of acquisitions.threads) {
    const number = numbers.get(thread), row = rows[number];
    let place = cursors[number] + 1;
    while (place < row.times.length && row.does[place] !== 2) place++;
    cursors[number] = place;
    const lane = made.get(row.cores[place]);
    if (!lane || lane.filled >= lane.times.length) continue;
    const at = lane.filled++;
    lane.times[at] = row.times[place];
    lane.ends[at] = place + 1 < row.times.length ? row.times[place + 1] : picture.end;
    lane.who[at] = number;
    lane.sums[at + 1] = lane.sums[at] + lane.ends[at] - lane.times[at];
  }
  return [...made.values()];
}

async function show(number) {
  state.process = number;
  const process = report.processes[number];
  const { threads, acquisitions, asks } = decode(await unpack(number));
  const rows = [];
  for (const about of process.threads) {
    const thread = threads.get(about.index);
    if (thread) rows.push({ about, name: about.name || "thread " + about.native_id, ...thread });
  }
  for (const [index, thread] of threads) {
    if (!rows.some((row) => row.index === index)) rows.push({ about: null, name: "thread #" + index, ...thread });
  }
  picture = { rows, acquisitions, asks, end: process.duration_ns, process };
  picture.numbers = new Map(rows.map((row, place) => [row.index, place]));
  picture.shown = rows.slice(0, MOST_ROWS);
  picture.lanes = lanes(rows, acquisitions);
  state.from = process.coverage.from_ns || 0;
  state.to = picture.end;
  state.chosen = null;
  const wanted = /^#(\d+)-(\d+)$/.exec(location.hash);
  if (wanted) look(Number(wanted[1]), Number(wanted[2]));
  describe(process);
  resize();
  document.body.dataset.ready = "yes";
}

const UNITS = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]];
function time(ns, digits = 3) {
  for (const [size, unit] of UNITS) {
    if (Math.abs(ns) >= size) return Number((ns / size).toPrecision(digits)) + " " + unit;
  }
  return "0";
}

// A point in time, as exactly as the view needs it.
function point(ns, step) {
  const [size, unit] = UNITS.find(([size]) => Math.abs(ns) >= size) || [1, "ns"];
  const digits = Math.max(0, Math.min(9, Math.ceil(Math.log10(size / step))));
  return (ns / size).toFixed(digits) + " " + unit;
}

function colours() {
  const style = getComputedStyle(document.documentElement);
  const get = (name) => style.getPropertyValue("--" + name).trim();
  return Object.fromEntries(["paper", "ink", "faint", "line", "row", "holds", "waits", "ask", "arrow"].map((name) => [name, get(name)]));
}

const shade = (number) => `hsl(${(number * 137.5 + 205) % 360} 55% 55%)`;

function resize() {
  if (!picture) return;
  const ratio = window.devicePixelRatio || 1;
  const height = AXIS + picture.lanes.length * (LANE + 3) + (picture.lanes.length ? 8 : 0) +
    picture.shown.length * (ROW + GAP) + 6;
  const width = canvas.parentElement.clientWidth;
  canvas.style.height = height + "px";
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  request();
}

let requested = false;
function request() {
  if (requested) return;
  requested = true;
  requestAnimationFrame(() => { requested = false; draw(); });
}

function geometry() {
  const width = canvas.clientWidth || canvas.parentElement.clientWidth;
  const left = LABELS, right = width - 8;
  const scale = (right - left) / (state.to - state.from);
  const lanesTop = AXIS + 2;
  const rowsTop = lanesTop + picture.lanes.length * (LANE + 3) + (picture.lanes.length ? 8 : 0);
  return { width, left, right, scale, lanesTop, rowsTop, x: (at) => left + (at - state.from) * scale };
}

function draw() {
  const begun = performance.now();
  const paint = canvas.getContext("2d"), colour = colours(), view = geometry();
  const ratio = canvas.width / view.width;
  paint.setTransform(ratio, 0, 0, ratio, 0, 0);
  paint.fillStyle = colour.paper;
  paint.fillRect(0, 0, view.width, canvas.height / ratio);
  paint.font = "12px system-ui, sans-serif";
  paint.textBaseline = "middle";
  drawAxis(paint, colour, view);
  picture.lanes.forEach((lane, number) => drawLane(paint, colour, view, lane, view.lanesTop + number * (LANE + 3)));
  picture.shown.forEach((row, number) => drawRow(paint, colour, view, row, number));
  drawHandOffs(paint, colour, view);
  drawAsks(paint, colour, view);
  const span = state.to - state.from;
  document.getElementById("where").textContent = `${point(state.from, span / 1000)} to ${point(state.to, span / 1000)} (${time(span)})`;
  canvas.dataset.frame = (performance.now() - begun).toFixed(1);
  canvas.dataset.view = `${Math.round(state.from)}-${Math.round(state.to)}`;
}

function drawAxis(paint, colour, view) {
  const rough = (state.to - state.from) / Math.max(2, (view.right - view.left) / 130);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= rough);
  paint.textAlign = "center";
  for (let at = Math.ceil(state.from / step) * step; at <= state.to; at += step) {
    const x = Math.round(view.x(at)) + 0.5;
    paint.strokeStyle = colour.line;
    paint.beginPath();
    paint.moveTo(x, AXIS - 6);
    paint.lineTo(x, canvas.clientHeight);
    paint.stroke();
    paint.fillStyle = colour.faint;
    if (x > view.left + 20 && x < view.right - 25) paint.fillText(point(at, step), x, 10);
  }
}

function label(paint, colour, text, y, bold) {
  paint.textAlign = "left";
  paint.fillStyle = bold ? colour.ink : colour.faint;
  let shown = text;
  while (paint.measureText(shown).width > LABELS - 30 && shown.length > 4) shown = shown.slice(0, -2).replace(/…$/, "") + "…";
  paint.fillText(shown, 10, y);
}

// Spans of one kind between two times: each by itself if they are few, else what is in each column.
function drawRow(paint, colour, view, row, number) {
  const top = view.rowsTop + number * (ROW + GAP);
  paint.fillStyle = colour.row;
  paint.fillRect(view.left, top, view.right - view.left, ROW);
  const isChosen = state.chosen === row.index;
  label(paint, colour, row.name, top + ROW / 2, true);
  if (picture.lanes.length) {
    // Its colour in the rows of the cores.
    paint.fillStyle = shade(number);
    paint.fillRect(LABELS - 14, top + 4, 5, ROW - 8);
  }
  if (isChosen) {
    paint.strokeStyle = colour.ink;
    paint.strokeRect(view.left - 1.5, top - 1.5, view.right - view.left + 3, ROW + 3);
  }
  const first = find(row.times, state.from), last = find(row.times, state.to);
  const columns = Math.round(view.right - view.left);
  if (last - first < columns) {
    for (let place = first; place <= last; place++) {
      const does = row.does[place];
      if (!does) continue;
      const from = Math.max(view.x(row.times[place]), view.left);
      const next = place + 1 < row.times.length ? row.times[place + 1] : picture.end;
      const to = Math.min(view.x(next), view.right);
      paint.fillStyle = does === 2 ? colour.holds : colour.waits;
      const height = does === 2 ? ROW : ROW * 0.55;
      paint.fillRect(from, top + ROW - height, Math.max(to - from, 0.7), height);
    }
    return;
  }
  const wide = (state.to - state.from) / columns;
  let place = first, at = state.from;
  let held = sum(row, row.held, 2, at, place), waited = sum(row, row.waited, 1, at, place);
  for (let column = 0; column < columns; column++) {
    at = state.from + (column + 1) * wide;
    // The next column is near: step from here, twice as far each time.
    let reach = 1;
    while (place + reach < row.times.length && row.times[place + reach] <= at) reach *= 2;
    place = findBetween(row.times, at, place, Math.min(place + reach, row.times.length));
    const heldNow = sum(row, row.held, 2, at, place), waitedNow = sum(row, row.waited, 1, at, place);
    levels[column] = ROW * Math.min(1, (heldNow - held) / wide);
    over[column] = levels[column] + ROW * Math.min(1, (waitedNow - waited) / wide);
    held = heldNow;
    waited = waitedNow;
  }
  fillSteps(paint, colour.waits, view.left, top + ROW, over, columns);
  fillSteps(paint, colour.holds, view.left, top + ROW, levels, columns);
}

// One polygon: a step of its height for each column, and one for columns of about the same height.
const levels = new Float64Array(8192), over = new Float64Array(8192);
function fillSteps(paint, colour, left, bottom, heights, columns) {
  paint.fillStyle = colour;
  paint.beginPath();
  paint.moveTo(left, bottom);
  let height = 0;
  for (let column = 0; column < columns; column++) {
    if (Math.abs(heights[column] - height) < 0.25) continue;
    paint.lineTo(left + column, bottom - height);
    height = heights[column];
    paint.lineTo(left + column, bottom - height);
  }
  paint.lineTo(left + columns, bottom - height);
  paint.lineTo(left + columns, bottom);
  paint.fill();
}

function findBetween(times, at, low, high) {
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (times[middle] <= at) low = middle; else high = middle;
  }
  return low;
}

function drawLane(paint, colour, view, lane, top) {
  label(paint, colour, "core " + lane.core, top + LANE / 2, false);
  paint.fillStyle = colour.row;
  paint.fillRect(view.left, top, view.right - view.left, LANE);
  if (!lane.times.length) return;
  const first = find(lane.times, state.from), last = find(lane.times, state.to);
  const columns = Math.round(view.right - view.left);
  if (last - first < columns) {
    for (let place = first; place <= last; place++) {
      if (lane.ends[place] < state.from) continue;
      const from = Math.max(view.x(lane.times[place]), view.left), to = Math.min(view.x(lane.ends[place]), view.right);
      paint.fillStyle = shade(lane.who[place]);
      paint.fillRect(from, top, Math.max(to - from, 0.7), LANE);
    }
    return;
  }
  const wide = (state.to - state.from) / columns;
  const by = (at, place) => lane.sums[place] + Math.max(0, Math.min(at, lane.ends[place]) - lane.times[place]);
  let place = first, held = by(state.from, place);
  for (let column = 0; column < columns; column++) {
    const at = state.from + (column + 1) * wide;
    let reach = 1;
    while (place + reach < lane.times.length && lane.times[place + reach] <= at) reach *= 2;
    place = findBetween(lane.times, at, place, Math.min(place + reach, lane.times.length));
    const now = by(at, place);
    levels[column] = LANE * Math.min(1, (now - held) / wide);
    held = now;
  }
  fillSteps(paint, colour.faint, view.left, top + LANE, levels, columns);
}

// When the hold ended that a thread had at a time.
function endOfHold(row, at) {
  let place = find(row.times, at);
  while (place > 0 && row.does[place] === 2 && row.times[place] > at) place--;
  return place + 1 < row.times.length && row.does[place] === 2 ? row.times[place + 1] : row.times[place];
}

function drawHandOffs(paint, colour, view) {
  const { times, threads } = picture.acquisitions;
  if (!times.length) return;
  const first = Math.max(1, find(times, state.from)), last = find(times, state.to);
  if (last - first > FEW_ARROWS) return;
  const y = (number) => view.rowsTop + number * (ROW + GAP) + ROW / 2;
  paint.strokeStyle = paint.fillStyle = colour.arrow;
  paint.lineWidth = 1;
  for (let place = first; place <= last; place++) {
    const source = picture.numbers.get(threads[place - 1]), target = picture.numbers.get(threads[place]);
    if (source === target || source >= picture.shown.length || target >= picture.shown.length) continue;
    const given = Math.min(endOfHold(picture.rows[source], times[place - 1]), times[place]);
    const x0 = view.x(given), x1 = view.x(times[place]);
    if (x1 < view.left || x1 > view.right) continue;
    const down = target > source ? 1 : -1;
    const y0 = y(source) + down * ROW / 2, y1 = y(target) - down * ROW / 2;
    paint.beginPath();
    paint.moveTo(Math.max(x0, view.left), y0);
    paint.lineTo(x1, y1);
    paint.stroke();
    paint.beginPath();
    paint.moveTo(x1, y1 + down * 3);
    paint.lineTo(x1 - 3, y1 - down * 3);
    paint.lineTo(x1 + 3, y1 - down * 3);
    paint.fill();
  }
}

function drawAsks(paint, colour, view) {
  const { times, threads } = picture.asks;
  if (!times.length) return;
  const first = find(times, state.from), last = find(times, state.to);
  // Where they would touch each other they say nothing.
  if (last - first > (view.right - view.left) / 14) return;
  paint.fillStyle = colour.ask;
  for (let place = first; place <= last; place++) {
    const number = picture.numbers.get(threads[place]);
    if (number === undefined || number >= picture.shown.length || times[place] < state.from) continue;
    const x = view.x(times[place]), top = view.rowsTop + number * (ROW + GAP);
    paint.beginPath();
    paint.moveTo(x - 4, top);
    paint.lineTo(x + 4, top);
    paint.lineTo(x, top + 7);
    paint.fill();
  }
}

// The view: the address names it, so that it can be passed on.
let named = 0;
function look(from, to) {
  const least = 50, whole = picture.end;
  let span = Math.min(Math.max(to - from, least), whole);
  from = Math.min(Math.max(from, 0), whole - span);
  state.from = from;
  state.to = from + span;
  clearTimeout(named);
  named = setTimeout(() => history.replaceState(null, "", `#${Math.round(state.from)}-${Math.round(state.to)}`), 300);
  request();
}

function zoom(factor, about = (state.from + state.to) / 2) {
  look(about - (about - state.from) * factor, about + (state.to - about) * factor);
}

function move(share) {
  const by = (state.to - state.from) * share;
  look(state.from + by, state.to + by);
}

const timeAt = (x) => {
  const view = geometry();
  return state.from + (Math.max(x, view.left) - view.left) / view.scale;
};

canvas.addEventListener("wheel", (event) => {
  event.preventDefault();
  if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) return move(event.deltaX / 1500);
  zoom(1.0015 ** event.deltaY, timeAt(event.offsetX));
}, { passive: false });

let grabbed = null;
canvas.addEventListener("pointerdown", (event) => {
  grabbed = { x: event.clientX, from: state.from, to: state.to };
  canvas.setPointerCapture(event.pointerId);
  canvas.classList.add("grabbed");
});
canvas.addEventListener("pointerup", () => {
  grabbed = null;
  canvas.classList.remove("grabbed");
});
canvas.addEventListener("pointermove", (event) => {
  if (grabbed) {
    const by = (event.clientX - grabbed.x) / geometry().scale;
    tip.hidden = true;
    return look(grabbed.from - by, grabbed.to - by);
  }
  explain(event.offsetX, event.offsetY);
});
canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
canvas.addEventListener("dblclick", (event) => zoom(0.2, timeAt(event.offsetX)));

function explain(x, y) {
  const view = geometry(), at = timeAt(x);
  const number = Math.floor((y - view.rowsTop) / (ROW + GAP));
  const row = picture.shown[number];
  if (x < view.left || x > view.right || y < view.rowsTop || !row) {
    tip.hidden = true;
    return;
  }
  const place = find(row.times, at);
  const next = place + 1 < row.times.length ? row.times[place + 1] : picture.end;
  const does = ["elsewhere", "waits", "holds the lock"][row.does[place]];
  const core = row.does[place] === 2 && row.cores[place] ? `, from core ${row.cores[place] - 1} on` : "";
  tip.textContent = `${row.name}: ${does}${core}\nfor ${time(next - row.times[place])}, from ${point(row.times[place], (state.to - state.from) / 1e4)}`;
  tip.hidden = false;
  const left = Math.min(x + 14, view.width - tip.offsetWidth - 6);
  tip.style.left = left + "px";
  tip.style.top = Math.min(y + 16, canvas.clientHeight - tip.offsetHeight - 4) + "px";
}

function press(event) {
  if (event.target.tagName === "SELECT" || event.ctrlKey || event.metaKey || event.altKey) return;
  const keys = {
    ArrowLeft: () => move(-0.2), ArrowRight: () => move(0.2), a: () => move(-0.2), d: () => move(0.2),
    "+": () => zoom(0.6), "=": () => zoom(0.6), w: () => zoom(0.6), ArrowUp: () => zoom(0.6),
    "-": () => zoom(1 / 0.6), s: () => zoom(1 / 0.6), ArrowDown: () => zoom(1 / 0.6),
    "0": () => look(0, picture.end), Home: () => look(0, picture.end), t: toggle,
  };
  if (event.key in keys && picture) {
    event.preventDefault();
    keys[event.key]();
  }
}
document.addEventListener("keydown", press);

function toggle() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  request();
}

document.getElementById("whole").onclick = () => look(0, picture.end);
document.getElementById("in").onclick = () => zoom(0.6);
document.getElementById("out").onclick = () => zoom(1 / 0.6);
document.getElementById("theme").onclick = toggle;
document.getElementById("png").onclick = () => {
  const link = document.createElement("a");
  link.download = "deconvoy.png";
  link.href = canvas.toDataURL("image/png");
  link.click();
};
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", request);
new ResizeObserver(resize).observe(canvas.parentElement);

// The words.
function cell(text) {
  const made = document.createElement("td");
  made.textContent = text;
  return made;
}

function describe(process) {
  const { process: about, totals } = process;
  document.getElementById("title").textContent = about.command.length ? about.command.join(" ") : `${about.runtime} ${about.policy}`;
  const said = [`${about.runtime}`, `policy ${about.policy || "stock"}`, `pid ${about.pid}`, `${about.cores} cores`,
    time(process.duration_ns), `${totals.acquires.toLocaleString("en")} acquisitions`,
    `${totals.switches.toLocaleString("en")} switches`, `${totals.asks.toLocaleString("en")} requests`];
  if (picture.rows.length > picture.shown.length) said.push(`${picture.shown.length} of ${picture.rows.length} threads drawn`);
  if (process.coverage.overwritten) said.push(`the first ${process.coverage.overwritten.toLocaleString("en")} events were overwritten`);
  document.getElementById("about").textContent = said.join(" · ");
  const list = document.querySelector("#findings ol");
  list.replaceChildren(...process.findings.map((finding) => {
    const made = document.createElement("li");
    made.textContent = finding.text;
    return made;
  }));
  const heads = ["thread", "holds", "waits", "elsewhere", "acquires", "of them waited", "wait p50", "wait p99", "longest wait", "longest hold", "made to give way"];
  const row = document.createElement("tr");
  for (const head of heads) {
    const made = document.createElement("th");
    made.textContent = head;
    row.append(made);
  }
  document.querySelector("#table thead").replaceChildren(row);
  const percent = (share) => (100 * share).toFixed(1) + " %";
  document.querySelector("#table tbody").replaceChildren(...process.threads.map((thread) => {
    const line = document.createElement("tr");
    line.append(...[thread.name || "thread " + thread.native_id, percent(thread.holding_share), percent(thread.waiting_share),
      percent(thread.elsewhere_share), thread.acquires.toLocaleString("en"), thread.waits.toLocaleString("en"),
      time(thread.wait.p50_ns), time(thread.wait.p99_ns), time(thread.wait.max_ns), time(thread.hold.max_ns),
      thread.forced.toLocaleString("en")].map(cell));
    line.onclick = () => {
      state.chosen = state.chosen === thread.index ? null : thread.index;
      line.parentElement.querySelectorAll(".chosen").forEach((other) => other.classList.remove("chosen"));
      if (state.chosen !== null) line.classList.add("chosen");
      request();
    };
    return line;
  }));
}

const select = document.getElementById("process");
report.processes.forEach((process, number) => {
  const made = document.createElement("option");
  made.value = String(number);
  made.textContent = `pid ${process.process.pid}`;
  select.append(made);
});
select.hidden = report.processes.length < 2;
select.onchange = () => show(Number(select.value));
show(0);
