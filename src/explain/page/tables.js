
// ---- what the document says of a node

const stageGraph = (name) => doc.stages.find((s) => s.stage === name)?.graph;
const here = (x) => !x.where;

function nodeFacts(v, n) {
  const out = [], fact = (name, ...what) => out.push(el("dt", {}, name), el("dd", {}, ...what));
  const refs = (ids) => ids.flatMap((id, i) => [i ? ", " : "", link(`%${id} ${clip(v.model.nodes[id].title, 20)}`, () => v.reveal(id))]);
  const top = !v.trail.length;
  if (v.model.program) return stepFacts(v, n, fact, refs, out, top);
  fact("type", el("span", {class: "mono"}, n.raw.out.join(", ")));
  if (n.label) fact("label", n.label);
  if (n.raw.pass) fact("made by", n.raw.pass);
  for (const [key, value] of Object.entries(n.raw.attrs || {})) fact(key, el("span", {class: "mono"}, value));
  if (n.ins.length) fact("reads", refs([...new Set(n.ins)]));
  const users = v.users.get(n.id);
  if (users.length) fact("read by", refs(users.slice(0, 24)), users.length > 24 ? ` and ${users.length - 24} more` : "");
  for (const b of n.raw.bodies || [])
    fact(b.field, link(`open (${plural(b.graph.nodes.length, "node")})`, () => v.openBody(`%${n.id}.${b.field}`, graphModel(b.graph, v.model.stage))));
  if (top && v.model.stage === "optimised") {
    const group = doc.fusion.groups.find((g) => here(g) && g.nodes.includes(n.id));
    if (group) fact("fused into", link(`%${group.region} region of ${plural(group.nodes.length, "node")}`, () => showNode("fused", group.region)));
    const alone = doc.fusion.alone.find((a) => here(a) && a.node === n.id);
    if (alone) fact("not fused", alone.why);
    for (const r of doc.fusion.refusals.filter((f) => here(f) && f.consumer === n.id))
      fact("not with", link(`%${r.producer}`, () => v.reveal(r.producer)), `: ${r.why}`);
  }
  if (top && v.model.stage === "fused") {
    const group = doc.fusion.groups.find((g) => here(g) && g.region === n.id), d = doc.dispatch.nodes[n.id];
    if (group) fact("made of", group.nodes.flatMap((id, i) => [i ? ", " : "", link(`%${id}`, () => showNode("optimised", id))]));
    fact("dispatch", d.path, d.kernel ? `: ${d.kernel}` : "");
    for (const r of d.refused || []) fact("refused", `${r.kernel}: ${r.why}`);
    doc.program.steps.forEach((s, i) => { if (s.node === n.id) fact("step", link(`${i} ${s.kernel || s.control}`, () => showNode("lir", i))); });
  }
  return out;
}
function stepFacts(v, n, fact, refs, out, top) {
  const s = n.raw, p = v.model.program, k = p.launches.findIndex((l) => l.begin <= n.id && n.id < l.end), launch = p.launches[k];
  fact("label", s.label);
  if (s.node >= 0 && top) fact("node", link(`%${s.node}`, () => showNode("fused", s.node)));
  if (s.kernel) fact("work", `${amount(s.flops, "FLOP")}, ${bytes(s.bytes)}, ${plural(s.blocks, "block")}`);
  if (s.length !== undefined) fact("length", s.length);
  fact("launch", `${k}${launch.end - launch.begin > 1 ? `, steps ${launch.begin} to ${launch.end - 1} in tiles of ${launch.tile} of ${launch.rows} rows` : ""}`);
  if (launch.seconds !== undefined) fact("time", time(launch.seconds), launch.limit_seconds ? `, limit ${time(launch.limit_seconds)}` : "");
  for (const [what, list] of [["in", s.in || []], ["out", s.out || []]])
    for (const x of list) {
      const b = p.buffers[x.buffer];
      fact(what, el("span", {class: "mono"}, `b${x.buffer} ${x.type}`), ` ${b.place}${b.offset !== undefined ? ` +${b.offset}` : ""}${x.strides ? `, strides ${x.strides.join(" ")}` : ""}`);
    }
  if (n.ins.length) fact("after", refs(n.ins));
  (s.bodies || []).forEach((b, i) => fact(`body ${i}`, link(`open (${plural(b.steps.length, "step")})`, () => v.openBody(`step ${n.id} body ${i}`, stepModel(b, null)))));
  return out;
}

// ---- overview

const card = (value, what) => el("div", {class: "card"}, el("b", {}, value), el("span", {}, what));
function drawOverview(section) {
  const p = doc.program, e = doc.environment, flops = sum(p.launches, (l) => l.flops);
  const cards = [card(doc.stages[0].graph.nodes.length.toLocaleString("en"), "nodes as written"), card(p.steps.length.toLocaleString("en"), "steps"),
    card(p.launches.length.toLocaleString("en"), "launches"), card(amount(flops, "FLOP"), "work"), card(bytes(p.arena_bytes), "arena"),
    card(time(sum(doc.passes, (x) => x.seconds)), "passes"), card(time(doc.codegen.seconds), "code generation")];
  if (doc.measured) cards.push(card(time(doc.measured.seconds), `one run, best of ${doc.measured.runs}`), card(amount(flops / doc.measured.seconds, "FLOP/s"), "reached"));
  put(section, el("div", {class: "cards"}, cards), el("h2", {}, "Stages"), stagesTable(), el("h2", {}, "Where the time goes"), ...hottest(), el("h2", {}, "Environment"),
    el("dl", {class: "facts"}, ...facts(e)));
}
function facts(e) {
  const list = [["RLX", e.rlx], ["device", `${e.device}, ${plural(e.threads, "thread")} of ${e.machine_threads}`]];
  for (const line of e.libraries) list.push(["library", line]);
  list.push(["options", Object.entries(e.options).map(([k, v]) => `${k} ${v}`).join(", ")]);
  const sizes = Object.entries(e.sizes);
  if (sizes.length) list.push(["sizes", sizes.map(([k, v]) => `?${k} = ${v}`).join(", ")]);
  if (doc.limits) list.push(["limits", `${amount(doc.limits.gflops * 1e9, "FLOP/s")} and ${amount(doc.limits.gbytes * 1e9, "B/s")}, ${doc.limits.source}`]);
  if (doc.measured?.made_up.length) list.push(["made up", `values of ${doc.measured.made_up.slice(0, 12).join(", ")}${doc.measured.made_up.length > 12 ? ` and ${doc.measured.made_up.length - 12} more` : ""}`]);
  return list.flatMap(([k, v]) => [el("dt", {}, k), el("dd", {}, v)]);
}
const dtypeOf = (type) => type.slice(type.lastIndexOf(" ") + 1);
function stagesTable() {
  const rows = doc.stages.map((s) => ({name: s.stage, nodes: s.graph.nodes.filter((n) => kindOf(n.op) !== "leaf"), all: s.graph.nodes.length}));
  return table([
    {title: "stage", show: (r) => link(r.name, () => { go("graph"); view.setStage(r.name); })},
    {title: "nodes", number: true, value: (r) => r.all},
    {title: "leaves", number: true, value: (r) => r.all - r.nodes.length},
    {title: "results by dtype", wide: true, show: (r) => tally(r.nodes.flatMap((n) => n.out), dtypeOf).map(([d, n]) => `${d} ${n}`).join(", ")},
    {title: "most frequent ops", wide: true, show: (r) => tally(r.nodes, (n) => n.op).slice(0, 6).map(([op, n]) => `${op} ${n}`).join(", ")},
  ], rows).node;
}
function hottest() {
  const launches = doc.program.launches, value = launches.some((l) => l.seconds !== undefined) ? (l) => l.seconds : (l) => l.limit_seconds ?? l.flops;
  const timed = launches.some((l) => l.seconds !== undefined);
  const groups = new Map();
  for (const l of launches) {
    const name = kernelNames(doc.program, l);
    const g = groups.get(name) || {name, count: 0, value: 0, flops: 0};
    g.count++; g.value += value(l); g.flops += l.flops;
    groups.set(name, g);
  }
  const rows = [...groups.values()].sort((a, b) => b.value - a.value), total = sum(rows, (r) => r.value) || 1;
  return [timed ? null : el("p", {class: "soft"}, "Not measured: give inputs, or --measure. Ordered by operations."),
    table([{title: "kernel", wide: true, mono: true, show: (r) => r.name}, {title: "launches", number: true, value: (r) => r.count},
      {title: "work", number: true, value: (r) => r.flops, show: (r) => amount(r.flops, "FLOP")},
      {title: timed ? "time" : "share", number: true, value: (r) => r.value, show: (r) => (timed ? time(r.value) : percent(r.value / total))},
      {title: "", show: (r) => el("i", {class: "meter", style: `width:${Math.max(1, (180 * r.value) / total)}px`})}], rows.slice(0, 12)).node];
}

// ---- passes

function drawPasses(section) {
  const parts = [["kept", (r) => r.kept], ["rewritten", (r) => r.rewritten.count], ["added", (r) => r.added.count], ["removed", (r) => r.removed.count]];
  put(section, el("h2", {}, plural(doc.passes.length, "pass").replace("passs", "passes")), el("p", {class: "legend"}, "Click a pass to see what it changed.",
    parts.map(([k]) => [el("i", {class: `k-${k}`}), k])));
  put(section, table([
    {title: "#", number: true, value: (r) => doc.passes.indexOf(r) + 1},
    {title: "pass", value: (r) => r.pass}, {title: "time", number: true, value: (r) => r.seconds, show: (r) => time(r.seconds)},
    {title: "nodes before", number: true, value: (r) => r.nodes_before}, {title: "after", number: true, value: (r) => r.nodes_after},
    {title: "", show: (r) => {
      const total = sum(parts, ([, f]) => f(r)) || 1;
      return el("span", {class: "stack"}, parts.map(([k, f]) => el("i", {class: `k-${k}`, style: `width:${(100 * f(r)) / total}%`})));
    }},
    ...parts.map(([k, f]) => ({title: k, number: true, value: f})),
    {title: "rules", number: true, value: (r) => sum(Object.values(r.rules || {}), (n) => n)},
  ], doc.passes, {expand: passDetails, empty: "The program came at a later stage: no pass ran."}).node);
}
function passDetails(r) {
  const list = (title, c) => (c.count ? el("div", {}, el("b", {}, `${title} ${c.count}`), el("ul", {class: "mono"}, c.nodes.map(([op, type, n]) =>
    el("li", {}, `${n > 1 ? `${n} × ` : ""}${op} ${type}`)))) : null);
  const rules = Object.entries(r.rules || {}).sort((a, b) => b[1] - a[1]);
  const parts = [list("removed", r.removed), list("added", r.added), list("rewritten", r.rewritten),
    rules.length ? el("div", {}, el("b", {}, "rules"), el("ul", {class: "mono"}, rules.map(([name, n]) => el("li", {}, `${name} ${n}`)))) : null];
  return el("div", {class: "lists"}, parts.some((x) => x) ? parts : el("span", {class: "soft"}, "It changed nothing."));
}

// ---- fusion

function drawFusion(section) {
  const f = doc.fusion, g = stageGraph("optimised");
  const name = (id, where) => (id < 0 || where || !g ? (id < 0 ? "?" : `%${id}`) : `%${id} ${g.nodes[id].op}`);
  const nodeLink = (id, where) => (id < 0 || where || !g ? name(id, where) : link(name(id, where), () => showNode("optimised", id)));
  put(section, el("div", {class: "cards"}, card(f.nodes, "nodes fused"), card(f.regions, "regions"), card(f.refusals.length, "refusals"), card(f.alone.length, "in no region")));

  const sort = (r) => r.why.replace(/\[[^\]]*\]/g, "[…]").replace(/\d+/g, "…");  // one for all sizes
  const reasons = tally(f.refusals, sort), chips = el("div", {class: "row"});
  const of = (r, i, node) => (node < 0 && r.names ? r.names[i] : nodeLink(node, r.where));
  const textOf = (r, i, node) => (node < 0 && r.names ? r.names[i] : name(node, r.where));
  const where = (r) => (r.where ? [el("br"), el("span", {class: "soft"}, r.where)] : null);
  const refusals = table([
    {title: "producer", value: (r) => r.producer, show: (r) => [of(r, 0, r.producer), where(r)]},
    {title: "consumer", value: (r) => r.consumer, show: (r) => of(r, 1, r.consumer)},
    {title: "why they are not one kernel", wide: true, value: (r) => r.why},
  ], f.refusals, {text: (r) => `${textOf(r, 0, r.producer)} ${textOf(r, 1, r.consumer)} ${r.why}`});
  let chosen = null;
  for (const [why, n] of reasons) chips.append(el("button", {class: "chip", onclick: (e) => {
    chosen = chosen === why ? null : why;
    for (const c of chips.children) c.classList.toggle("active", c === e.currentTarget && chosen !== null);
    refusals.filter(chosen === null ? null : (r) => sort(r) === chosen);
  }}, `${n} × ${why}`));
  const opsOf = (r) => (r.where || !g ? "" : tally(r.nodes, (id) => g.nodes[id].op).map(([op, n]) => (n > 1 ? `${op}×${n}` : op)).join(" "));
  put(section, el("h2", {}, "What was not fused, and why"), el("div", {class: "row"}, searchBox("Filter refusals", (w) => refusals.search(w))), chips, refusals.node,
    el("h2", {}, "What became one kernel"), table([
      {title: "region", value: (r) => r.region, show: (r) => (r.where ? `%${r.region} in ${r.where}` : link(`%${r.region}`, () => showNode("fused", r.region)))},
      {title: "nodes", number: true, value: (r) => r.nodes.length}, {title: "ops", wide: true, mono: true, value: opsOf},
      {title: "label", wide: true, show: (r) => (r.where || !g ? "" : g.nodes[r.nodes[r.nodes.length - 1]].label || "")},
    ], f.groups).node,
    el("h2", {}, "Nodes in no region"), table([
      {title: "node", value: (r) => r.node, show: (r) => (r.where ? `%${r.node} in ${r.where}` : link(`%${r.node}`, () => showNode("optimised", r.node)))},
      {title: "op", value: (r) => r.op}, {title: "why", wide: true, value: (r) => r.why},
    ], f.alone).node);
}

// ---- dispatch

function drawDispatch(section) {
  const g = stageGraph("fused"), rows = [];
  const collect = (nodes, graph, where) => nodes.forEach((d, i) => {
    if (d.path !== "leaf") rows.push({...d, id: i, where, node: graph.nodes[i]});
    (d.bodies || []).forEach((b, k) => collect(b, graph.nodes[i].bodies[k].graph, `${where}%${i}.${graph.nodes[i].bodies[k].field} `));
  });
  if (g) collect(doc.dispatch.nodes, g, "");
  const paths = tally(rows, (r) => r.path), chips = el("div", {class: "row"});
  const all = table([
    {title: "node", value: (r) => r.id, show: (r) => (r.where ? `${r.where}%${r.id}` : link(`%${r.id}`, () => showNode("fused", r.id)))},
    {title: "op", mono: true, value: (r) => (r.node.op === "region" ? regionTitle(r.node) : r.node.op)},
    {title: "path", value: (r) => r.path}, {title: "kernel", mono: true, value: (r) => r.kernel || ""},
    {title: "type", mono: true, value: (r) => r.node.out.join(", ")}, {title: "dtype", value: (r) => dtypeOf(r.node.out[0] || "")},
    {title: "refused by", wide: true, show: (r) => (r.refused || []).map((x) => el("div", {}, el("b", {}, x.kernel), `: ${x.why}`))},
  ], rows, {text: (r) => `${r.node.op} ${r.path} ${r.kernel || ""} ${r.node.out.join(" ")} ${r.node.label || ""} ${(r.refused || []).map((x) => x.why).join(" ")}`});
  let chosen = null;
  for (const [path, n] of paths) chips.append(el("button", {class: "chip", onclick: (e) => {
    chosen = chosen === path ? null : path;
    for (const c of chips.children) c.classList.toggle("active", c === e.currentTarget && chosen !== null);
    all.filter(chosen === null ? null : (r) => r.path === chosen);
  }}, `${path} ${n}`));
  const grouped = new Map();
  for (const d of doc.dispatch.decomposed) {
    const key = JSON.stringify([d.op, d.why]);
    const x = grouped.get(key) || {op: d.op, why: d.why, count: 0, types: new Set()};
    x.count++; x.types.add(d.out.join(", "));
    grouped.set(key, x);
  }
  put(section, el("h2", {}, `Who takes each node on ${doc.dispatch.target}`), el("div", {class: "row"}, searchBox("Filter nodes", (w) => all.search(w)), chips), all.node,
    el("h2", {}, "Composites that no kernel takes, and that became their definitions"), table([
      {title: "op", mono: true, value: (r) => r.op}, {title: "times", number: true, value: (r) => r.count},
      {title: "why", wide: true, value: (r) => r.why}, {title: "types", wide: true, mono: true, show: (r) => [...r.types].slice(0, 4).join("; ")},
    ], [...grouped.values()]).node);
}

// ---- memory

const COLOURS = ["#5b8def", "#4fb286", "#e0a23c", "#d9696b", "#9a7bd6", "#4bb3c4", "#b58863", "#8fa0b3"];
function drawMemory(section) {
  put(section, ofPrograms((p) => {
    const arena = p.buffers.map((b, i) => ({...b, id: i})).filter((b) => b.place === "arena" && b.first >= 0);
    const saved = p.unshared_bytes ? 1 - p.arena_bytes / p.unshared_bytes : 0;
    const kinds = tally(p.buffers, (b) => b.place).map(([k, n]) => [k, n, sum(p.buffers.filter((b) => b.place === k), (b) => b.bytes)]);
    return [el("div", {class: "cards"}, card(bytes(p.arena_bytes), "arena"), card(bytes(p.largest_live_bytes), "largest sum in use"),
      card(bytes(p.unshared_bytes), "without reuse"), card(percent(saved), "saved"), kinds.map(([k, n, b]) => card(bytes(b), `${plural(n, "buffer")}: ${k}`))),
    el("h2", {}, "The arena over time"), el("p", {class: "soft"}, "From left to right the launches, from bottom to top the arena; a box is a buffer while it lives. Above, the bytes in use."),
    planPicture(p, arena), el("h2", {}, "Buffers"), table([
      {title: "buffer", value: (b) => b.id, show: (b) => `b${b.id}`}, {title: "place", value: (b) => b.place},
      {title: "size", number: true, value: (b) => b.bytes, show: (b) => bytes(b.bytes)}, {title: "offset", number: true, value: (b) => b.offset, show: (b) => b.offset ?? ""},
      {title: "first step", number: true, value: (b) => b.first, show: (b) => (b.first < 0 ? "" : b.first)},
      {title: "last step", number: true, value: (b) => b.last, show: (b) => (b.last < 0 ? "" : b.last)},
      {title: "holds", wide: true, show: (b) => holds(p, b)},
    ], p.buffers.map((b, i) => ({...b, id: i}))).node];
  }));
}
function holds(p, b) {
  if (b.workspace) return `workspace of ${p.steps[b.writer].label}`;
  const what = b.writer === undefined ? `${b.place} ${b.index}` : p.steps[b.writer].label;
  return b.shares === undefined ? what : `${what}, in place of b${b.shares}`;
}
function planPicture(p, arena) {
  const W = 1200, H = 420, top = 90, bottom = 24, left = 8, n = Math.max(1, p.launches.length);
  const launchOf = new Array(p.steps.length);
  p.launches.forEach((l, i) => { for (let s = l.begin; s < l.end; s++) launchOf[s] = i; });
  const x = (l) => left + ((W - 2 * left) * l) / n, y = (o) => H - bottom - ((H - bottom - top) * o) / (p.arena_bytes || 1);
  const picture = svg("svg", {class: "plan", viewBox: `0 0 ${W} ${H}`, preserveAspectRatio: "none"});
  const most = p.largest_live_bytes || 1;
  let line = `M${x(0)} ${top - 14}`;
  p.live_bytes.forEach((b, i) => { const h = top - 14 - (60 * b) / most; line += `L${x(i)} ${h}L${x(i + 1)} ${h}`; });
  picture.append(svg("path", {class: "live", d: `${line}L${x(n)} ${top - 14}Z`}));
  for (const b of arena.filter((a) => a.shares === undefined).concat(arena.filter((a) => a.shares !== undefined))) {
    const from = x(launchOf[b.first]), to = x(launchOf[b.last] + 1), inset = b.shares === undefined ? 0 : 0.18;
    const h = Math.max(1.5, y(b.offset) - y(b.offset + b.bytes));
    picture.append(hover(svg("rect", {class: "buffer", x: from, y: y(b.offset) - h + h * inset / 2, width: Math.max(1, to - from), height: h * (1 - inset),
      fill: COLOURS[b.id % COLOURS.length], "fill-opacity": b.shares === undefined ? 0.8 : 0.5}),
    () => `b${b.id}: ${bytes(b.bytes)} at ${b.offset}\nsteps ${b.first} to ${b.last}\n${holds(p, b)}`));
  }
  picture.append(svg("line", {class: "axis", x1: left, x2: W - left, y1: H - bottom, y2: H - bottom}));
  return picture;
}

// ---- kernels

function kernelNames(p, l) {
  const names = [];
  for (let s = l.begin; s < l.end; s++) names.push((p.steps[s].kernel || p.steps[s].control).replace(/^k\d+_/, ""));
  return names.join(" + ");
}
function drawKernels(section) {
  put(section, ofPrograms((p, isWhole) => {
    const rows = p.launches.map((l, i) => ({...l, id: i, name: kernelNames(p, l), labels: p.steps.slice(l.begin, l.end).map((s) => s.label)}));
    const timed = rows.some((r) => r.seconds !== undefined), limited = rows.some((r) => r.limit_seconds !== undefined), total = sum(rows, (r) => r.seconds || 0);
    const columns = [
      {title: "#", number: true, value: (r) => r.id},
      {title: "kernel", wide: true, mono: true, value: (r) => r.name},
      {title: "computes", wide: true, show: (r) => r.labels.map((t, i) => el("div", {}, isWhole ? link(t, () => showNode("lir", r.begin + i)) : t))},
      {title: "FLOPs", number: true, value: (r) => r.flops, show: (r) => amount(r.flops)},
      {title: "bytes", number: true, value: (r) => r.bytes, show: (r) => bytes(r.bytes)},
      {title: "FLOP/byte", number: true, value: (r) => r.flops / (r.bytes || 1), show: (r) => (r.flops ? (r.flops / (r.bytes || 1)).toPrecision(2) : "")},
    ];
    const byTime = {title: "time", number: true, value: (r) => r.seconds, show: (r) => [time(r.seconds), el("i", {class: "meter", style: `width:${(80 * r.seconds) / (total || 1)}px`})]};
    if (timed) columns.push(byTime, {title: "of all", number: true, value: (r) => r.seconds, show: (r) => percent(r.seconds / total)},
      {title: "GFLOP/s", number: true, value: (r) => r.flops / r.seconds, show: (r) => (r.flops ? (r.flops / r.seconds / 1e9).toPrecision(3) : "")});
    if (limited) columns.push({title: "roofline limit", number: true, value: (r) => r.limit_seconds, show: (r) => time(r.limit_seconds)});
    if (timed && limited) columns.push({title: "of limit", number: true, value: (r) => r.limit_seconds / r.seconds, show: (r) => percent(r.limit_seconds / r.seconds)});
    const list = table(columns, rows, {sort: timed ? byTime : columns[3], text: (r) => `${r.name} ${r.labels.join(" ")}`});
    return [el("div", {class: "cards"}, card(rows.length, "launches"), card(p.steps.length, "steps"), card(amount(sum(rows, (r) => r.flops), "FLOP"), "work"),
      card(bytes(sum(rows, (r) => r.bytes)), "traffic, at most"), timed ? card(time(total), "sum of launches") : null,
      timed && limited ? card(percent(sum(rows, (r) => r.limit_seconds) / total), "of the roofline") : null),
    timed ? null : el("p", {class: "soft"}, isWhole ? "Not measured: give inputs, or --measure." : "Bodies are measured with the step around them."),
    timed && doc.limits ? roofline(rows) : null,
    timed && doc.limits ? el("p", {class: "soft"}, "The limit is the machine's f32 operations or its traffic with memory, whichever takes longer; what still lies in a cache is faster than that, and has more than 100 %.") : null,
    el("div", {class: "row"}, searchBox("Filter kernels", (w) => list.search(w))), list.node].filter((x) => x);
  }));
}
// Launches by what they do with a byte; the roof is what the machine can.
function roofline(rows) {
  const W = 760, H = 300, L = 64, B = 34, peak = doc.limits.gflops * 1e9, traffic = doc.limits.gbytes * 1e9;
  const dots = rows.filter((r) => r.flops > 0 && r.seconds > 0 && r.bytes > 0).map((r) => ({...r, i: r.flops / r.bytes, rate: r.flops / r.seconds}));
  if (!dots.length) return null;
  const lowX = Math.min(0.1, ...dots.map((d) => d.i)), highX = Math.max(peak / traffic * 4, ...dots.map((d) => d.i)) * 1.3;
  const lowY = Math.min(peak / 1e3, ...dots.map((d) => d.rate)) / 1.3, highY = Math.max(peak, ...dots.map((d) => d.rate)) * 1.6;
  const scale = (v, a, b, from, to) => from + ((to - from) * Math.log(v / a)) / Math.log(b / a);
  const x = (v) => scale(v, lowX, highX, L, W - 12), y = (v) => scale(v, lowY, highY, H - B, 12);
  const picture = svg("svg", {class: "plan", style: "max-width:760px;height:300px", viewBox: `0 0 ${W} ${H}`});
  for (let e = Math.ceil(Math.log10(lowX)); e <= Math.log10(highX); e++) picture.append(svg("line", {class: "axis", x1: x(10 ** e), x2: x(10 ** e), y1: 12, y2: H - B}),
    svg("text", {class: "sub", x: x(10 ** e), y: H - B + 16, "text-anchor": "middle"}, e < 0 ? (10 ** e).toFixed(-e) : 10 ** e));
  for (let e = Math.ceil(Math.log10(lowY)); e <= Math.log10(highY); e++) picture.append(svg("line", {class: "axis", x1: L, x2: W - 12, y1: y(10 ** e), y2: y(10 ** e)}),
    svg("text", {class: "sub", x: L - 6, y: y(10 ** e) + 4, "text-anchor": "end"}, amount(10 ** e)));
  picture.append(svg("path", {class: "roof", d: `M${x(lowX)} ${y(Math.max(lowY, lowX * traffic))} L${x(peak / traffic)} ${y(peak)} L${x(highX)} ${y(peak)}`}),
    svg("text", {class: "sub", x: W - 12, y: H - 4, "text-anchor": "end"}, "FLOP per byte; upwards FLOP/s"));
  const most = Math.max(...dots.map((d) => d.seconds));
  for (const d of dots) picture.append(hover(svg("circle", {class: "dot", cx: x(d.i), cy: y(d.rate), r: 3 + 9 * Math.sqrt(d.seconds / most), onclick: () => showNode("lir", d.begin)}),
    () => `${d.name}\n${d.labels[0]}\n${time(d.seconds)}, ${amount(d.rate, "FLOP/s")}, ${percent(d.limit_seconds / d.seconds)} of its limit`));
  return picture;
}
