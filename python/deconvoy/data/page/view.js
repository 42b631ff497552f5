// What is shown, what the keys and the mouse do, and the words.
const tip = document.getElementById("tip");
const MOST_ROWS = 60;

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
