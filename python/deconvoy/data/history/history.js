"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
const plot = document.getElementById("plot");
const svg = plot.querySelector("svg");
const tip = document.getElementById("tip");
const cursor = document.getElementById("cursor");
const place = data.place;
const at = data.rows.map((row) => row.x);
let chosen = -1;

// The pixel of a position, as the picture is shown now.
function scale() {
  const box = svg.getBoundingClientRect();
  const figure = plot.getBoundingClientRect();
  const zoom = box.width / svg.viewBox.baseVal.width;
  return { zoom, left: box.left - figure.left, top: box.top - figure.top, box };
}

function pixel(x, zoom) {
  const share = (x - place.first) / (place.last - place.first);
  return (place.left + share * (place.right - place.left)) * zoom;
}

function nearest(x) {
  let low = 0;
  let high = at.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (at[middle] < x) low = middle + 1; else high = middle;
  }
  return low > 0 && x - at[low - 1] < at[low] - x ? low - 1 : low;
}

function show(number) {
  chosen = Math.max(0, Math.min(data.rows.length - 1, number));
  const row = data.rows[chosen];
  const { zoom, left, top } = scale();
  const x = left + pixel(row.x, zoom);
  cursor.hidden = tip.hidden = false;
  cursor.style.left = `${x}px`;
  cursor.style.top = `${top + place.top * zoom}px`;
  cursor.style.height = `${(place.bottom - place.top) * zoom}px`;
  const lines = [`${row.id}  ${row.date}  ${row.version}`.trim(), row.subject, row.author];
  if (row.change) lines.push(row.change);
  row.cells.forEach((cell, place) => { if (cell) lines.push(`${data.columns[place]}: ${cell}`); });
  if (row.failure) lines.push(`not measured: ${row.failure}`);
  tip.textContent = lines.filter(Boolean).join("\n");
  const room = plot.clientWidth - tip.offsetWidth - 4;
  tip.style.left = `${Math.max(0, x + 14 > room ? x - tip.offsetWidth - 14 : x + 14)}px`;
  tip.style.top = `${top + place.top * zoom + 12}px`;
}

function hide() {
  cursor.hidden = tip.hidden = true;
  chosen = -1;
}

plot.addEventListener("pointermove", (event) => {
  const { zoom, box } = scale();
  const share = ((event.clientX - box.left) / zoom - place.left) / (place.right - place.left);
  if (share < -0.02 || share > 1.02) hide();
  else show(nearest(place.first + share * (place.last - place.first)));
});
plot.addEventListener("pointerleave", hide);
plot.addEventListener("keydown", (event) => {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (step) { show(chosen + step); event.preventDefault(); }
  if (event.key === "Escape") hide();
});

// The table has as many rows as fit a screen or two, until somebody asks for all.
const FIRST = 200;
const table = document.getElementById("table");
const more = document.getElementById("more");
let isWhole = false;

function cell(text, name) {
  const made = document.createElement(name === "head" ? "th" : "td");
  if (name && name !== "head") made.className = name;
  made.textContent = text;
  return made;
}

function line(row) {
  const made = document.createElement("tr");
  if (row.change) made.className = "changed";
  else if (row.failure) made.className = "failed";
  made.append(cell(row.id, "id"), cell(row.date), ...(data.versions ? [cell(row.version)] : []));
  if (row.failure) {
    const told = cell(row.failure, "text");
    told.colSpan = data.columns.length;
    made.append(told);
  } else {
    made.append(...row.cells.map((text) => cell(text, "number")));
  }
  made.append(cell(row.author), cell(row.subject, "text"));
  return made;
}

function fill() {
  const words = document.getElementById("find").value.toLowerCase().split(/\s+/).filter(Boolean);
  const fits = (row) => words.every((word) => row.words.includes(word));
  const found = words.length ? data.rows.filter(fits) : data.rows;
  const shown = isWhole ? found : found.slice(0, FIRST);
  table.tBodies[0].replaceChildren(...shown.map(line));
  more.hidden = shown.length === found.length;
  more.textContent = `All ${found.length}`;
  document.getElementById("shown").textContent = `${shown.length} of ${data.rows.length}`;
}

for (const row of data.rows) row.words = [row.id, row.author, row.subject, row.version].join(" ").toLowerCase();
table.tHead.rows[0].append(
  ...["revision", "date", ...(data.versions ? ["version"] : []), ...data.columns, "author", "message"]
    .map((text) => cell(text, "head")),
);
more.addEventListener("click", () => { isWhole = true; fill(); });
document.getElementById("find").addEventListener("input", fill);
fill();
document.body.dataset.ready = "yes";
