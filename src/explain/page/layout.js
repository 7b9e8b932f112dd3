
// ---- layout: boxes in layers, programs run downwards.
//
// layers(items, edges) gives each item {w, h} a place x, y; edges are pairs of indices. Returns the size of the whole.
const GAP_X = 22, GAP_Y = 34;
function layers(items, edges) {
  const n = items.length, below = items.map(() => []), above = items.map(() => []);
  for (const [a, b] of edges) if (a !== b) { below[a].push(b); above[b].push(a); }
  const level = levels(n, below);
  const rows = [];
  level.forEach((l, i) => (rows[l] ||= []).push(i));
  const place = new Array(n);
  rows.forEach((row) => row.forEach((i, k) => { place[i] = k; }));
  const mean = (list, i) => (list.length ? sum(list, (j) => place[j] / rows[level[j]].length) / list.length : place[i] / rows[level[i]].length);
  for (let sweep = 0; sweep < 6; sweep++) {
    const downwards = sweep % 2 === 0, order = downwards ? rows : [...rows].reverse();
    for (const row of order) {
      const weight = new Map(row.map((i) => [i, mean(downwards ? above[i] : below[i], i)]));
      row.sort((a, b) => weight.get(a) - weight.get(b));
      row.forEach((i, k) => { place[i] = k; });
    }
  }
  return coordinates(items, rows, above, below);
}

// Longest paths from above; edges that close a cycle (folded groups may) do not count. What nothing leads to comes down to
// where it is read.
function levels(n, below) {
  const state = new Uint8Array(n), order = [], back = new Set();
  for (let root = 0; root < n; root++) {
    if (state[root]) continue;
    const stack = [[root, 0]];
    state[root] = 1;
    while (stack.length) {
      const top = stack[stack.length - 1], i = top[0];
      if (top[1] < below[i].length) {
        const j = below[i][top[1]++];
        if (state[j] === 1) back.add(i * n + j);
        else if (!state[j]) { state[j] = 1; stack.push([j, 0]); }
      } else {
        state[i] = 2;
        order.push(i);
        stack.pop();
      }
    }
  }
  order.reverse();
  const level = new Array(n).fill(0), entered = new Uint8Array(n);
  for (const i of order)
    for (const j of below[i]) if (!back.has(i * n + j)) { level[j] = Math.max(level[j], level[i] + 1); entered[j] = 1; }
  for (const i of order) {
    const next = below[i].filter((j) => !back.has(i * n + j)).map((j) => level[j]);
    if (!entered[i] && next.length) level[i] = Math.min(...next) - 1;
  }
  return level;
}

function coordinates(items, rows, above, below) {
  const rowWidth = (row) => sum(row, (i) => items[i].w) + GAP_X * (row.length - 1);
  let y = 0;
  for (const row of rows) {
    if (!row) continue;
    let x = -rowWidth(row) / 2;
    for (const i of row) { items[i].x = x; items[i].y = y; x += items[i].w + GAP_X; }
    y += Math.max(...row.map((i) => items[i].h)) + GAP_Y;
  }
  // Boxes move towards the middle of what they are connected to, as far as their neighbours let them.
  const middle = (i) => items[i].x + items[i].w / 2;
  for (let round = 0; round < 4; round++) {
    const near = round % 2 ? below : above;
    for (const row of round % 2 ? [...rows].reverse() : rows) {
      if (!row) continue;
      const wish = row.map((i) => (near[i].length ? sum(near[i], middle) / near[i].length - items[i].w / 2 : items[i].x));
      row.forEach((i, k) => { items[i].x = k ? Math.max(wish[k], items[row[k - 1]].x + items[row[k - 1]].w + GAP_X) : wish[k]; });
      const shift = sum(row, (i) => items[i].x) / row.length - sum(wish, (w) => w) / row.length;
      row.forEach((i) => { items[i].x -= shift; });
    }
  }
  const left = Math.min(...items.map((b) => b.x));
  for (const b of items) b.x -= left;
  return {w: Math.max(0, ...items.map((b) => b.x + b.w)), h: Math.max(0, y - GAP_Y)};
}
