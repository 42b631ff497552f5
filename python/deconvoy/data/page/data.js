"use strict";
// The timeline of a trace. Each thread has its changes in order, and sums of the time that it has
// held and waited up to each: how much of a column of pixels is what follows from two look-ups,
// however many changes lie in it. So a frame takes as long for five million events as for five.

const report = JSON.parse(document.getElementById("report").textContent);

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
function find(times, at, low = 0, high = times.length) {
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

