// Counts down, in one thread or split over several workers.
//
// Source: slides 3 to 11 of Beazley's "In Search of the Perfect GIL". See README.md in this folder.
"use strict";
const { Worker, isMainThread, workerData } = require("node:worker_threads");
const { parseArgs } = require("node:util");

function countdown(n) {
  while (n > 0) {
    n--;
  }
}

function worker(part) {
  return new Promise((resolve, reject) => {
    new Worker(__filename, { workerData: part }).on("exit", resolve).on("error", reject);
  });
}

async function main() {
  const { values } = parseArgs({
    options: {
      mode: { type: "string", default: "sequential" },
      workers: { type: "string", default: "1" },
      work: { type: "string", default: "100000000" },
    },
  });
  const [workers, work] = [Number(values.workers), Number(values.work)];
  const begun = process.hrtime.bigint();
  if (values.mode === "sequential") {
    countdown(work);
  } else {
    const part = Math.floor(work / workers);
    await Promise.all(Array.from({ length: workers }, () => worker(part)));
  }
  const elapsed = Number(process.hrtime.bigint() - begun) / 1e9;
  console.log(JSON.stringify({ elapsed_s: elapsed }));
}

if (isMainThread) {
  main();
} else {
  countdown(workerData);
}
