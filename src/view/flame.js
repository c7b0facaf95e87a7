// The flame graph: children lie below their callers, as wide as their time.
// rows: [time, [names of frames, outermost first], thread, state]; gems: of each name.
const $ = id => document.getElementById(id);
const APP = "(app)";
const pick = { thread: "", state: "", frames: "" };
let root, zoom, word = "";

const label = key => typeof key === "number" ? names[key] : key;
const gem = key => typeof key === "number" ? gems[key] : "";
const share = ns => (root.v ? 100 * ns / root.v : 0).toFixed(1) + " %";
const amount = v => unit == "ns" ? (v / 1e9).toFixed(3) + " s" : v.toLocaleString("en") + " " + unit;
const time = v => amount(v) + " (" + share(v) + ")";
const text = node => label(node.key) + ": " + time(node.v) + ", own " + time(node.own);

// Runs of three and more frames that are not the application's become one.
function folded(stack) {
  const kept = [];
  for (let i = 0; i < stack.length;) {
    let end = i;
    while (end < stack.length && gems[stack[end]] !== APP) end++;
    if (end - i < 3) end = Math.max(end, i + 1), kept.push(...stack.slice(i, end));
    else kept.push("... " + gems[stack[i]], ...end === stack.length ? [stack[end - 1]] : []);
    i = end;
  }
  return kept;
}

function shown(stack) {
  if (pick.frames === "fold") return folded(stack);
  if (pick.frames !== "app") return stack;
  const kept = stack.filter(n => gems[n] === APP);
  return kept.length ? kept : ["(no frame of the application)"];
}

function build() {
  root = { key: "all", v: 0, own: 0, c: new Map() };
  for (const [v, stack, thread, state] of rows) {
    if (pick.thread && pick.thread !== threads[thread] || pick.state && pick.state !== states[state]) continue;
    let at = root;
    at.v += v;
    for (const key of shown(stack)) {
      let next = at.c.get(key);
      if (!next) at.c.set(key, next = { key, v: 0, own: 0, c: new Map(), up: at });
      next.v += v;
      at = next;
    }
    at.own += v;
  }
  zoom = root;
}

// From the root to where the stacks part, if that is far: what is above is the same in all.
function begin() {
  let at = root, depth = 0;
  for (;;) {
    const next = [...at.c.values()].find(k => k.v >= 0.98 * root.v);
    if (!next || gem(at.key) === APP) break;
    at = next;
    depth++;
  }
  return depth > 8 ? at : root;
}

function colour(key) {
  const g = gem(key);
  if (g === APP) return "hsl(32,100%,62%)";
  if (g === "(native)" || g === "(C)") return "hsl(210,25%,82%)";
  if (g === "(ruby)" || g === "(eval)") return "hsl(200,45%,80%)";
  let hue = 0;
  for (const c of g || label(key)) hue = (hue * 31 + c.charCodeAt(0)) % 360;
  return "hsl(" + hue + ",45%,80%)";
}

const matches = key => word && (label(key) + " " + gem(key)).toLowerCase().includes(word);

function box(node, x, w, depth, title) {
  const e = document.createElement("div");
  e.style.left = 100 * x + "%";
  e.style.width = 100 * w + "%";
  e.style.top = 18 * depth + "px";
  e.style.background = colour(node.key);
  e.style.opacity = word && !matches(node.key) ? 0.4 : 1;
  e.className = (gem(node.key) === APP ? "app " : "") + (matches(node.key) ? "found" : "");
  e.textContent = title || label(node.key);
  e.onmouseover = () => { $("h").textContent = text(node); };
  e.onclick = () => draw(node);
  $("g").append(e);
}

// The time of all frames that match, those below one that does counted once.
function found() {
  const todo = [root];
  let sum = 0;
  while (todo.length) {
    const node = todo.pop();
    if (matches(node.key)) sum += node.v;
    else todo.push(...node.c.values());
  }
  return sum;
}

function draw(node) {
  zoom = node;
  $("g").textContent = "";
  const ups = [];
  for (let k = node; k; k = k.up) ups.unshift(k);
  let depth = 0, most = 0;
  const hidden = Math.max(0, ups.length - 5);
  ups.forEach((k, i) => {
    if (i && i < hidden) return;
    box(k, 0, 1, depth++, i || !hidden ? "" : "all, and " + (hidden - 1) + " callers that are not shown");
  });
  const todo = [[node, 0, 1, depth]];
  while (todo.length) {
    const [p, x, w, e] = todo.pop();
    let at = x;
    for (const k of [...p.c.values()].sort((a, b) => b.v - a.v)) {
      const part = w * k.v / p.v;
      if (part > 0.0005) {
        box(k, at, part, e);
        most = Math.max(most, e);
        todo.push([k, at, part, e + 1]);
      }
      at += part;
    }
  }
  $("g").style.height = 18 * (most + depth + 2) + "px";
  $("h").textContent = text(node);
  $("found").textContent = word ? time(found()) + " in what matches" : "";
}

// Sums of a name, or of its gem: time on the stack once, and own time.
function sums(of) {
  const all = new Map();
  for (const [v, stack, thread, state] of rows) {
    if (pick.thread && pick.thread !== threads[thread] || pick.state && pick.state !== states[state]) continue;
    const seen = new Set();
    stack.forEach((n, i) => {
      const key = of(n);
      if (!all.has(key)) all.set(key, { key, v: 0, own: 0 });
      const sum = all.get(key);
      if (!seen.has(key)) sum.v += v;
      if (i === stack.length - 1) sum.own += v;
      seen.add(key);
    });
  }
  return [...all.values()];
}

function chip(parent, title, search, background) {
  const e = document.createElement("span");
  e.textContent = title;
  if (background) e.style.background = background;
  e.onclick = () => { $("search").value = search; find(search); };
  $(parent).append(e);
}

function lists() {
  $("app").textContent = "The application: ";
  const app = sums(n => n).filter(s => gems[s.key] === APP).sort((a, b) => b.own - a.own || b.v - a.v);
  for (const s of app.slice(0, 10)) chip("app", names[s.key] + "  " + share(s.v) + ", own " + share(s.own), names[s.key]);
  if (!app.length) $("app").textContent += "no frame of it was seen";
  $("gems").textContent = "Own time: ";
  for (const s of sums(n => gems[n]).sort((a, b) => b.own - a.own).slice(0, 12))
    chip("gems", s.key + " " + share(s.own), s.key, colour(gems.indexOf(s.key)));
}

function find(what) {
  word = what.toLowerCase();
  draw(zoom);
}

function anew() {
  build();
  lists();
  draw(begin());
}

function choice(id, all, list) {
  const e = $(id);
  for (const [value, title] of [["", all], ...list]) {
    const o = document.createElement("option");
    o.value = value;
    o.textContent = title;
    e.append(o);
  }
  e.onchange = () => { pick[id] = e.value; anew(); };
}

function reset() {
  pick.thread = pick.state = word = "";
  for (const id of ["thread", "state", "search"]) $(id).value = "";
  anew();
}

for (const t of talk) {
  const p = document.createElement("div");
  p.textContent = t;
  $("t").append(p);
}
choice("thread", "all threads", threads.map(t => [t, t]));
choice("state", "all states", states.map(t => [t, t]));
choice("frames", "all frames", [["fold", "other code folded"], ["app", "the application's only"]]);
$("search").oninput = () => find($("search").value);
$("reset").onclick = reset;
const deep = rows.reduce((most, r) => Math.max(most, r[1].length), 0) > 25;
if (deep && gems.includes(APP)) $("frames").value = pick.frames = "fold";
anew();
