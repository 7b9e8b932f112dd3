
// ---- the graph: a stage as boxes, labels folded to groups at first.

const HEAVY = /(^|_)(matmul|linear|conv|attention|einsum|dot|fft|rnn|lstm|gru|experts|solve|cholesky|svd|eigh|qr)/;
const VIEWS = /^(reshape|transpose|slice|broadcast|reverse|concat|pad|squeeze|unsqueeze|expand|copy)$/;
const HIDDEN_LEAVES = new Set(["param", "constant"]);
const nodeOf = (ref) => (typeof ref === "number" ? ref : parseInt(ref, 10));

function kindOf(op) {
  if (op === "input" || HIDDEN_LEAVES.has(op)) return "leaf";
  if (op === "region") return "region";
  if (/^(scan|cond|while_loop)$/.test(op)) return "control";
  return HEAVY.test(op) ? "heavy" : VIEWS.test(op) ? "view" : "op";
}

// What is drawn: nodes {id, op, title, sub, kind, label, ins, raw}; `stage` finds what other parts of the document say of them.
function graphModel(graph, stage) {
  const used = new Set(graph.outputs.map(nodeOf));
  const nodes = graph.nodes.map((n, id) => ({
    id, op: n.op, raw: n, kind: kindOf(n.op), label: n.label || "", ins: (n.in || []).map(nodeOf),
    title: n.name !== undefined ? `${n.op} ${n.name}` : regionTitle(n), sub: n.out.join(", "), isOutput: used.has(id),
  }));
  return {stage, nodes, graph};
}
function regionTitle(n) {
  if (n.op !== "region") return n.op;
  const ops = tally(n.bodies[0].graph.nodes.filter((x) => kindOf(x.op) !== "leaf"), (x) => x.op).map(([op, c]) => (c > 1 ? `${op}×${c}` : op));
  return `region: ${ops.slice(0, 3).join(" ")}${ops.length > 3 ? " …" : ""}`;
}
// Steps, each below those that wrote what it reads.
function stepModel(program, fused) {
  const writer = new Map();
  const nodes = program.steps.map((s, id) => {
    const of = fused?.nodes[s.node], name = s.kernel || s.control;
    const ins = [...new Set((s.in || []).map((v) => writer.get(v.buffer)).filter((w) => w !== undefined))];
    for (const v of s.out || []) writer.set(v.buffer, id);
    return {id, op: name, raw: s, kind: s.control ? "control" : of?.op === "region" ? "region" : kindOf(of?.op || name),
      label: of?.label || "", ins, title: name, sub: (s.out || []).map((v) => v.type).join(", ")};
  });
  return {stage: "lir", nodes, program};
}

// ---- groups
//
// Nodes of one label ("layer0/attention") are one group, or several: a group never depends on itself through others, so that a
// layer's way forward and its way back are two. Nodes without a label are put together where there are many.
const FOLD_ABOVE = 60, LOOSE = 64, FEW = 6;
function groupTree(model, showLeaves) {
  const drawn = model.nodes.filter((n) => showLeaves || !HIDDEN_LEAVES.has(n.op));
  const root = {name: "", path: "", children: [], nodes: drawn.map((n) => n.id)};
  const any = drawn.some((n) => n.label);
  const fold = drawn.length > FOLD_ABOVE || any;
  if (fold) divide(model, root, 0, drawn.length > FOLD_ABOVE);
  else root.children = root.nodes.map((id) => ({id}));
  return root;
}
function divide(model, group, depth, foldLoose) {
  const inside = new Set(group.nodes), unitOf = new Map(), units = [], current = new Map();
  const users = new Map();
  for (const id of group.nodes) for (const p of model.nodes[id].ins) (users.get(p) || users.set(p, []).get(p)).push(id);
  const part = (id) => model.nodes[id].label.split("/")[depth] || "";
  const name = (n) => {
    if (n.kind !== "leaf") return part(n.id) || (foldLoose ? "·" : "");
    if (n.op === "input") return "";
    const parts = new Set((users.get(n.id) || []).map(part));  // a parameter stands where it is read
    return parts.size === 1 ? [...parts][0] : "";
  };
  const reaches = (from, to) => {  // whether unit `from` depends on unit `to`
    const seen = new Set(), stack = [from];
    while (stack.length) {
      const u = stack.pop();
      if (u === to) return true;
      if (seen.has(u)) continue;
      seen.add(u);
      stack.push(...u.needs);
    }
    return false;
  };
  for (const id of group.nodes) {
    const n = model.nodes[id], key = name(n);
    const needs = n.ins.filter((p) => inside.has(p) && unitOf.has(p)).map((p) => unitOf.get(p));
    let unit = key && n.kind !== "leaf" ? current.get(key) : null;
    if (unit && ((key === "·" && unit.nodes.length >= LOOSE) || needs.some((u) => u !== unit && reaches(u, unit)))) unit = null;
    if (!unit) {
      unit = {key, nodes: [], needs: new Set()};
      units.push(unit);
      if (key && n.kind !== "leaf") current.set(key, unit);
    }
    unit.nodes.push(id);
    unitOf.set(id, unit);
    for (const u of needs) if (u !== unit) unit.needs.add(u);
  }
  const count = new Map();
  for (const u of units) {
    if (u.nodes.length === 1 || !u.key || (u.key === "·" && u.nodes.length < FEW)) { group.children.push(...u.nodes.map((id) => ({id}))); continue; }
    const n = (count.get(u.key) || 0) + 1;
    count.set(u.key, n);
    const title = u.key === "·" ? "unlabelled" : u.key;
    const child = {name: n > 1 ? `${title} (${n})` : title, path: `${group.path}/${u.key}#${n}`, children: [], nodes: u.nodes};
    if (u.key === "·") child.children = u.nodes.map((id) => ({id}));
    else divide(model, child, depth + 1, false);
    if (child.children.length === 1 && child.children[0].nodes) child.children = child.children[0].children;
    group.children.push(child);
  }
}

// ---- drawing

const LETTER = 7.25, BOX_H = 40, PAD = 14, HEAD = 24, MOST = 34;
const clip = (s, n = MOST) => (s.length > n ? `${s.slice(0, n - 1)}…` : s);

class GraphView {
  constructor(section) {
    this.open = new Set();
    this.trail = [];
    this.leaves = false;
    this.hits = new Set();
    this.stage = el("select", {class: "tool", id: "stage", "aria-label": "stage", onchange: (e) => this.setStage(e.target.value)});
    for (const s of doc.stages) this.stage.append(el("option", {value: s.stage}, `${s.stage}: ${plural(s.graph.nodes.length, "node")}`));
    this.stage.append(el("option", {value: "lir"}, `lir: ${plural(doc.program.steps.length, "step")}`));
    this.crumbs = el("span", {class: "row", style: "margin:0"});
    this.search = searchBox("Search ops, labels, types, %id", (words) => this.find(words));
    this.search.id = "search";
    const leaves = el("input", {type: "checkbox", onchange: (e) => { this.leaves = e.target.checked; this.regroup(); }});
    section.append(el("div", {class: "bar"}, this.stage, this.crumbs, this.search,
      el("button", {class: "tool", id: "fold", onclick: () => { this.open.clear(); this.draw(true); }}, "Fold all"),
      el("button", {class: "tool", id: "unfold", onclick: () => { this.each((g) => this.open.add(g.path)); this.draw(true); }}, "Open all"),
      el("button", {class: "tool", onclick: () => this.fit()}, "Fit"), el("label", {}, leaves, " parameters"),
      this.note = el("span", {class: "soft"})));
    this.content = svg("g");
    this.svg = svg("svg", {id: "drawing"}, svg("defs", {}, svg("marker", {id: "arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7,
      orient: "auto"}, svg("path", {class: "head", d: "M0 0 L8 4 L0 8 z"}))), this.content);
    this.found = el("div", {class: "found", hidden: ""});
    this.side = el("div", {class: "side"});
    section.append(el("div", {class: "canvas"}, el("div", {class: "draw"}, this.svg, this.found), this.side));
    this.pan();
    const best = doc.stages.some((s) => s.stage === "optimised") ? "optimised" : doc.stages[0].stage;
    this.stage.value = best;
    this.setStage(best);
  }

  setStage(name) {
    this.stage.value = name;
    const of = doc.stages.find((s) => s.stage === name);
    const fused = doc.stages.find((s) => s.stage === "fused");
    this.setModel(name === "lir" ? stepModel(doc.program, fused?.graph) : graphModel(of.graph, name), []);
  }
  setModel(model, trail) {
    this.model = model;
    this.trail = trail;
    this.open.clear();
    this.selected = null;
    this.hits.clear();
    this.search.value = "";
    this.found.hidden = true;
    this.crumbs.replaceChildren(...trail.flatMap((t) => ["›", link(t.name, t.back)]), ...(trail.length ? ["›", el("b", {}, model.name)] : []));
    this.regroup();
    this.details(null);
  }
  openBody(name, model) {
    const here = this.model, trail = this.trail;
    model.name = name;
    this.setModel(model, [...trail, {name: here.name || this.stage.value, back: () => this.setModel(here, trail)}]);
  }
  regroup() {
    this.tree = groupTree(this.model, this.leaves);
    this.paths = new Map();
    const visit = (g, above) => {
      for (const c of g.children) {
        if (c.id === undefined) visit(c, [...above, c]);
        else this.paths.set(c.id, above);
      }
    };
    visit(this.tree, []);
    this.users = new Map(this.model.nodes.map((n) => [n.id, []]));
    for (const n of this.model.nodes) for (const p of new Set(n.ins)) this.users.get(p)?.push(n.id);
    this.draw(true);
  }
  each(f) {
    const visit = (g) => g.children.forEach((c) => { if (c.id === undefined) { f(c); visit(c); } });
    visit(this.tree);
  }

  // Places all boxes that are to be seen, then draws them.
  draw(refit) {
    const edgesOf = new Map();
    for (const n of this.model.nodes) {
      const to = this.paths.get(n.id);
      if (!to) continue;
      for (const p of new Set(n.ins)) {
        const from = this.paths.get(p);
        if (!from) continue;
        let depth = 0;
        while (depth < to.length && depth < from.length && to[depth] === from[depth]) depth++;
        const owner = depth ? to[depth - 1] : this.tree;
        if (!edgesOf.has(owner)) edgesOf.set(owner, new Map());
        edgesOf.get(owner).set(`${from[depth]?.path ?? p}|${to[depth]?.path ?? n.id}`, [from[depth] ?? p, to[depth] ?? n.id]);
      }
    }
    const place = (group) => {
      const items = group.children.map((c) => (c.id !== undefined ? this.nodeBox(c.id) : this.open.has(c.path) ? this.openBox(c, place) : this.groupBox(c)));
      const at = new Map(group.children.map((c, i) => [c.id ?? c, i]));
      const edges = [...(edgesOf.get(group)?.values() || [])].map(([a, b]) => [at.get(a), at.get(b)]).filter(([a, b]) => a !== undefined && b !== undefined);
      return {items, ...layers(items, edges)};
    };
    const all = place(this.tree);
    this.size = all;
    this.boxes = new Map();
    const front = [], back = [];
    const put = (items, x, y) => {
      for (const b of items) {
        b.ax = x + b.x;
        b.ay = y + b.y;
        this.boxes.set(b.key, b);
        if (b.inner) { back.push(this.drawOpen(b)); put(b.inner, b.ax + PAD, b.ay + HEAD + PAD / 2); } else front.push(this.drawBox(b));
      }
    };
    put(all.items, 0, 0);
    this.content.replaceChildren(...back, ...this.drawEdges(), ...front);
    this.note.textContent = `${plural(this.boxes.size, "box").replace("boxs", "boxes")} of ${plural(this.model.nodes.length, this.model.program ? "step" : "node")}`;
    if (refit) this.fit(true);
  }
  nodeBox(id) {
    const n = this.model.nodes[id], title = `%${id} ${clip(n.title)}`, sub = clip(n.sub, 40);
    return {key: id, node: n, title, sub, w: Math.max(title.length * LETTER, sub.length * 6.7) + (n.isOutput ? 34 : 20), h: BOX_H, kind: n.kind};
  }
  groupBox(g) {
    const title = clip(g.name, 40), sub = plural(g.nodes.length, this.model.program ? "step" : "node");
    return {key: g.path, group: g, title, sub, w: Math.max(title.length * LETTER + 26, sub.length * 6.7 + 20, 110), h: BOX_H + 4, kind: "group"};
  }
  openBox(g, place) {
    const inner = place(g), title = clip(g.name, 60);
    return {key: g.path, group: g, title, inner: inner.items, w: Math.max(inner.w + 2 * PAD, title.length * LETTER + 40), h: inner.h + HEAD + 1.5 * PAD};
  }
  toggle(g) {
    if (this.open.has(g.path)) this.open.delete(g.path);
    else this.open.add(g.path);
    const before = this.boxes.get(g.path);
    this.draw(false);
    const after = this.boxes.get(g.path);  // stays under the pointer
    this.move(this.x + (before.ax - after.ax) * this.k, this.y + (before.ay - after.ay) * this.k);
  }
  sign(g, x, y) {
    return svg("text", {class: "sign", x, y, onclick: (e) => { e.stopPropagation(); this.toggle(g); }}, this.open.has(g.path) ? "−" : "+");
  }
  drawOpen(b) {
    return svg("g", {class: "open", "data-group": b.key, transform: `translate(${b.ax},${b.ay})`}, svg("rect", {width: b.w, height: b.h, rx: 9}),
      svg("text", {x: 24, y: 17}, b.title), this.sign(b.group, 10, 17));
  }
  drawBox(b) {
    const hit = b.node ? this.hits.has(b.key) : b.group.nodes.some((id) => this.hits.has(id));
    const g = svg("g", {class: `node ${b.kind} ${hit ? "hit" : ""} ${b.key === this.selected ? "selected" : ""}`, transform: `translate(${b.ax},${b.ay})`,
      "data-node": b.node ? b.key : null, "data-group": b.group ? b.key : null},
    svg("rect", {width: b.w, height: b.h, rx: b.kind === "leaf" ? 14 : 6}), svg("text", {x: b.group ? 24 : 10, y: 17}, b.title),
    svg("text", {class: "sub", x: b.group ? 24 : 10, y: 32}, b.sub), b.group ? this.sign(b.group, 9, 17) : null,
    b.node?.isOutput ? svg("text", {class: "sub", x: b.w - 18, y: 17}, "◂") : null);
    g.addEventListener("click", () => { if (!this.dragged) this.select(b.key, b); });
    if (b.group) g.addEventListener("dblclick", () => this.toggle(b.group));
    return g;
  }
  // The innermost box that is to be seen.
  boxOf(id) {
    for (const g of this.paths.get(id) || []) if (!this.open.has(g.path)) return this.boxes.get(g.path);
    return this.boxes.get(id);
  }
  drawEdges() {
    const seen = new Map();
    for (const n of this.model.nodes) {
      const to = this.boxOf(n.id);
      if (!to) continue;
      for (const p of n.ins) {
        const from = this.boxOf(p);
        if (from && from !== to) seen.set(`${from.key}|${to.key}`, [from, to]);
      }
    }
    return [...seen.values()].map(([a, b]) => {
      const x1 = a.ax + a.w / 2, y1 = a.ay + a.h, x2 = b.ax + b.w / 2, y2 = b.ay, bend = Math.max(18, Math.abs(y2 - y1) * 0.4);
      const near = this.selected !== null && (a.key === this.selected || b.key === this.selected);
      return svg("path", {class: `edge ${near ? "near" : ""}`, d: `M${x1} ${y1} C${x1} ${y1 + bend} ${x2} ${y2 - bend} ${x2} ${y2}`, "marker-end": "url(#arrow)"});
    });
  }

  // ---- looking around
  pan() {
    this.x = 20; this.y = 20; this.k = 1;
    let from = null;
    this.svg.addEventListener("pointerdown", (e) => { from = [e.clientX - this.x, e.clientY - this.y, e.clientX, e.clientY]; this.dragged = false; });
    addEventListener("pointermove", (e) => {
      if (!from) return;
      if (Math.hypot(e.clientX - from[2], e.clientY - from[3]) > 4) this.dragged = true;
      if (this.dragged) this.move(e.clientX - from[0], e.clientY - from[1]);
    });
    addEventListener("pointerup", () => { from = null; });
    this.svg.addEventListener("wheel", (e) => {
      e.preventDefault();
      const box = this.svg.getBoundingClientRect(), px = e.clientX - box.left, py = e.clientY - box.top;
      const k = Math.min(4, Math.max(0.02, this.k * Math.exp(-e.deltaY * 0.0015)));
      this.move(px - (px - this.x) * (k / this.k), py - (py - this.y) * (k / this.k), k);
    }, {passive: false});
  }
  move(x, y, k = this.k) {
    this.x = x; this.y = y; this.k = k;
    this.content.setAttribute("transform", `translate(${x},${y}) scale(${k})`);
  }
  // All of it; at first not smaller than can be read, then from the top.
  fit(first = false) {
    const box = this.svg.getBoundingClientRect(), w = box.width || 900, h = box.height || 600;
    let k = Math.min(1, (w - 40) / this.size.w, (h - 40) / this.size.h);
    if (first) k = Math.max(k, Math.min(0.85, Math.max(0.25, (w - 40) / this.size.w)));
    this.move((w - this.size.w * k) / 2, this.size.h * k < h ? (h - this.size.h * k) / 2 : 20, k);
  }
  center(key) {
    const b = this.boxes.get(key), box = this.svg.getBoundingClientRect(), k = Math.max(this.k, 0.7);
    if (b) this.move(box.width / 2 - (b.ax + b.w / 2) * k, box.height / 2 - (b.ay + b.h / 2) * k, k);
  }
  reveal(id) {
    if (!this.paths.has(id) && this.model.nodes[id]) { this.leaves = true; this.regroup(); }
    for (const g of this.paths.get(id) || []) this.open.add(g.path);
    this.selected = id;
    this.draw(false);
    this.center(id);
    this.details(this.boxes.get(id));
  }
  select(key, box) {
    this.selected = key;
    this.draw(false);
    this.details(box);
  }

  find(words) {
    words = words.trim().toLowerCase();
    const text = (n) => `%${n.id} ${n.title} ${n.label} ${n.sub} ${n.raw.pass || ""}`.toLowerCase();
    const list = words ? this.model.nodes.filter((n) => text(n).includes(words)) : [];
    this.hits = new Set(list.map((n) => n.id));
    this.found.hidden = !words;
    this.found.replaceChildren(el("div", {class: "soft"}, plural(list.length, "match").replace("matchs", "matches")),
      ...list.slice(0, 60).map((n) => el("div", {class: "mono", "data-found": n.id, onclick: () => { this.found.hidden = true; this.reveal(n.id); }},
        `%${n.id} ${clip(n.title)} `, el("span", {class: "soft"}, clip(n.label || n.sub, 44)))));
    this.draw(false);
  }

  details(b) {
    if (!b) {
      const ops = tally(this.model.nodes, (n) => n.op);
      return this.side.replaceChildren(el("h3", {}, "Click a node for its details"),
        el("p", {class: "soft"}, "The sign at a group, or a double click, opens and folds it. Drag to move, turn the wheel to zoom."),
        el("dl", {}, ops.slice(0, 40).flatMap(([op, n]) => [el("dt", {class: "mono"}, op), el("dd", {}, n)])));
    }
    if (b.group) {
      const ops = tally(b.group.nodes, (id) => this.model.nodes[id].op);
      return this.side.replaceChildren(el("h3", {}, b.group.name), el("p", {}, plural(b.group.nodes.length, "node"), " ",
        link(this.open.has(b.group.path) ? "fold" : "open", () => this.toggle(b.group))),
      el("dl", {}, ops.slice(0, 40).flatMap(([op, n]) => [el("dt", {class: "mono"}, op), el("dd", {}, n)])));
    }
    this.side.replaceChildren(el("h3", {class: "mono"}, `%${b.node.id} ${b.node.title}`), el("dl", {}, ...nodeFacts(this, b.node)));
  }
}

let view = null;
function drawGraph(section) { view = new GraphView(section); }
function showNode(stage, id) {
  go("graph");
  if (view.stage.value !== stage || view.trail.length) view.setStage(stage);
  view.reveal(id);
}
