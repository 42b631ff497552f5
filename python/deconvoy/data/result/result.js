"use strict";

// A click on a head sorts its table by that column; another one turns the order around.
const UNITS = { ns: 1e-9, us: 1e-6, ms: 1e-3, s: 1, "%": 0.01, x: 1, MiB: 1 };

function valueOf(text) {
  const found = /^~?(-?[\d,]*\.?\d+)\s*(ns|us|ms|s|%|x|MiB)?(?![\w.])/.exec(text);
  return found ? Number(found[1].replaceAll(",", "")) * (UNITS[found[2]] ?? 1) : NaN;
}

function compare(one, other) {
  const [a, b] = [valueOf(one), valueOf(other)];
  if (Number.isNaN(a) || Number.isNaN(b)) {
    if (Number.isNaN(a) && Number.isNaN(b)) return one.localeCompare(other, "en", { numeric: true });
    return Number.isNaN(a) ? 1 : -1;
  }
  return a - b;
}

function sort(head) {
  const place = [...head.parentNode.children].indexOf(head);
  const down = head.getAttribute("aria-sort") === "ascending";
  for (const other of head.parentNode.children) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  const body = head.closest("table").tBodies[0];
  const isNumber = head.classList.contains("number");
  const rows = [...body.rows].sort((one, other) => {
    const [a, b] = [one.cells[place].textContent, other.cells[place].textContent];
    const order = isNumber ? compare(a, b) : a.localeCompare(b, "en", { numeric: true });
    return down ? -order : order;
  });
  body.append(...rows);
}

for (const head of document.querySelectorAll("th")) {
  head.addEventListener("click", () => sort(head));
  head.addEventListener("keydown", (event) => { if (event.key === "Enter") sort(head); });
}
document.body.dataset.ready = "yes";
