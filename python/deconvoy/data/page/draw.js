// The picture.
const canvas = document.getElementById("canvas");
const LABELS = 170, AXIS = 26, ROW = 22, GAP = 4, LANE = 13, FEW_ARROWS = 400;

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
    place = find(row.times, at, place, Math.min(place + reach, row.times.length));
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
    place = find(lane.times, at, place, Math.min(place + reach, lane.times.length));
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

