// The page's frame: the document, small helpers, tabs, tables. Text from the document is only ever set as text.
const doc = JSON.parse(document.getElementById("data").textContent);
const SVG = "http://www.w3.org/2000/svg";

// el("td", {class: "mono", onclick: f}, child, "text", ...)
function el(name, attributes = {}, ...children) { return fill(document.createElement(name), attributes, children); }
function svg(name, attributes = {}, ...children) { return fill(document.createElementNS(SVG, name), attributes, children); }
function fill(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value);
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined) continue;
    node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return node;
}

const UNITS = [["T", 1e12], ["G", 1e9], ["M", 1e6], ["k", 1e3]];
function amount(n, unit = "") {
  if (n === undefined || n === null) return "";
  for (const [letter, size] of UNITS) if (n >= size) return `${(n / size).toPrecision(3)} ${letter}${unit}`;
  return `${Number.isInteger(n) ? n : n.toPrecision(3)}${unit && " " + unit}`;
}
function bytes(n) {
  if (n === undefined || n === null) return "";
  let unit = 0;
  for (; n >= 1024 && unit < 4; unit++) n /= 1024;
  return `${unit ? n.toPrecision(n >= 100 ? 4 : 3) : n} ${["B", "KB", "MB", "GB", "TB"][unit]}`;
}
function time(s) {
  if (s === undefined || s === null) return "";
  return s >= 1 ? `${s.toPrecision(3)} s` : s >= 1e-3 ? `${(s * 1e3).toPrecision(3)} ms` : `${(s * 1e6).toPrecision(3)} µs`;
}
const percent = (x) => (Number.isFinite(x) ? `${(100 * x).toPrecision(3)} %` : "");
const plural = (n, word) => `${n.toLocaleString("en")} ${word}${n === 1 ? "" : "s"}`;
const sum = (list, f) => list.reduce((total, x) => total + f(x), 0);
function tally(list, key) {
  const counts = new Map();
  for (const x of list) counts.set(key(x), (counts.get(key(x)) || 0) + 1);
  return [...counts].sort((a, b) => b[1] - a[1]);
}

// Children that are there.
function put(parent, ...children) { parent.append(...children.flat(Infinity).filter((x) => x !== null && x !== undefined)); }

// What floats beside the pointer.
const tip = document.getElementById("tip");
function hover(node, text) {
  node.addEventListener("mousemove", (e) => {
    tip.textContent = text();
    tip.hidden = false;
    tip.style.left = `${Math.min(e.clientX + 14, innerWidth - tip.offsetWidth - 8)}px`;
    tip.style.top = `${Math.min(e.clientY + 14, innerHeight - tip.offsetHeight - 8)}px`;
  });
  node.addEventListener("mouseleave", () => { tip.hidden = true; });
  return node;
}

// A table with columns {title, value(row) to sort by, show(row) what stands there, number, wide}, a page of rows at a time.
const PAGE = 200;
function table(columns, rows, {sort = null, down = true, onclick = null, expand = null, text = null, empty = "none"} = {}) {
  let by = sort, descending = down, shown = PAGE, wanted = "", kept = null;
  const body = el("tbody"), more = el("div", {class: "row"});
  const heads = columns.map((c) => el("th", {
    class: `${c.value ? "sortable " : ""}${c.number ? "number" : ""}`,
    onclick: c.value && (() => { descending = by === c ? !descending : Boolean(c.number); by = c; draw(); }),
  }, c.title));
  const box = el("div", {class: "tablebox"}, el("table", {}, el("thead", {}, el("tr", {}, heads)), body));
  const order = (a, b) => {
    const x = by.value(a), y = by.value(b);
    const c = typeof x === "string" ? x.localeCompare(y) : (x ?? -Infinity) - (y ?? -Infinity);
    return descending ? -c : c;
  };
  function chosen() {
    let list = kept ? rows.filter(kept) : rows;
    if (wanted) list = list.filter((r) => text(r).toLowerCase().includes(wanted));
    return by ? [...list].sort(order) : list;
  }
  function line(r) {
    const tr = el("tr", {class: onclick || expand ? "click" : null}, columns.map((c) =>
      el("td", {class: `${c.number ? "number" : ""} ${c.mono ? "mono" : ""} ${c.wide ? "wide" : ""}`}, c.show ? c.show(r) : c.value(r))));
    if (onclick) tr.addEventListener("click", () => onclick(r));
    if (expand) tr.addEventListener("click", () => {
      if (tr.nextSibling?.dataset.inner) return tr.nextSibling.remove();
      tr.after(el("tr", {"data-inner": 1}, el("td", {colspan: columns.length}, expand(r))));
    });
    return tr;
  }
  function draw() {
    const list = chosen();
    columns.forEach((c, i) => { heads[i].textContent = c.title + (by === c ? (descending ? " ↓" : " ↑") : ""); });
    body.replaceChildren(...list.slice(0, shown).map(line));
    if (!list.length) body.append(el("tr", {}, el("td", {class: "soft", colspan: columns.length}, empty)));
    more.replaceChildren(...(list.length > shown ? [el("button", {class: "tool", onclick: () => { shown *= 4; draw(); }},
      `more: ${plural(list.length - shown, "row")}`)] : []));
  }
  draw();
  return {
    node: el("div", {}, box, more),
    filter(f) { kept = f; shown = PAGE; draw(); },
    search(words) { wanted = words.toLowerCase(); shown = PAGE; draw(); },
  };
}
const searchBox = (label, on) => el("input", {class: "tool", type: "search", placeholder: label, "aria-label": label,
  oninput: (e) => on(e.target.value)});
const link = (text, f) => el("a", {href: "#", onclick: (e) => { e.preventDefault(); e.stopPropagation(); f(); }}, text);

// The programs of the document: the one itself and the bodies of its control flow.
function programs() {
  const list = [];
  const visit = (p, name) => {
    list.push({name, program: p});
    p.steps.forEach((s, i) => (s.bodies || []).forEach((b, k) => visit(b, `${name} / step ${i} body ${k}`)));
  };
  visit(doc.program, "program");
  return list;
}
// A selector where there are several.
function ofPrograms(draw) {
  const all = programs(), box = el("div");
  const show = (i) => box.replaceChildren(...draw(all[i].program, i === 0));
  const select = all.length < 2 ? null : el("div", {class: "row"}, el("select", {class: "tool", onchange: (e) => show(Number(e.target.value))},
    all.map((p, i) => el("option", {value: i}, p.name))));
  show(0);
  return [select, box];
}

// ---- tabs

const TABS = [
  ["overview", "Overview", drawOverview], ["graph", "Graph", drawGraph], ["passes", "Passes", drawPasses],
  ["fusion", "Fusion", drawFusion], ["dispatch", "Dispatch", drawDispatch], ["memory", "Memory", drawMemory],
  ["kernels", "Kernels", drawKernels],
];
const sections = new Map();
function show(name) {
  if (!TABS.some(([id]) => id === name)) name = "overview";
  for (const [id, , draw] of TABS) {
    document.getElementById(`tab-${id}`).classList.toggle("active", id === name);
    if (id === name && !sections.has(id)) {
      const section = el("section", {id: `section-${id}`, class: id});
      document.querySelector("main").append(section);
      sections.set(id, section);
      draw(section);
    }
    if (sections.has(id)) sections.get(id).style.display = id === name ? "" : "none";
  }
  tip.hidden = true;
}
function go(name) {
  location.hash = `/${name}`;
  show(name);
}

function start() {
  document.getElementById("title").textContent = doc.name || "program";
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const theme = (name) => { document.documentElement.dataset.theme = name; };
  theme(dark.matches ? "dark" : "light");
  dark.addEventListener("change", () => theme(dark.matches ? "dark" : "light"));
  document.getElementById("theme").addEventListener("click", () =>
    theme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
  document.getElementById("tabs").append(...TABS.map(([id, title]) =>
    el("button", {id: `tab-${id}`, onclick: () => go(id)}, title)));
  addEventListener("hashchange", () => show(location.hash.slice(2)));
  show(location.hash.slice(2));
}
