// The list of findings: only the rows in sight are in the page.
const data = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const MARGIN = 3; // Rows above and below those in sight.

const kinds = [...new Set(data.findings.map((finding) => finding.kind))];
let decisions = stored();
let kind = kinds[0];
let shown = [];
let current = 0;
const rows = new Map(); // By the place in the list.

function stored() {
  try {
    return JSON.parse(localStorage.getItem(data.key)) ?? {};
  } catch {
    return {}; // Without storage the decisions last as long as the page.
  }
}

function store() {
  try {
    localStorage.setItem(data.key, JSON.stringify(decisions));
  } catch {
    $("status").textContent = "This browser does not store decisions: save the files before you close the page.";
  }
}

function element(name, text = "", className = "") {
  const made = document.createElement(name);
  made.textContent = text;
  if (className) made.className = className;
  return made;
}

function picture(number) {
  const image = document.createElement("img");
  image.src = data.images[number].src;
  image.alt = image.title = data.images[number].path;
  return image;
}

function textOf(decision) {
  if (!decision) return "";
  return decision.action === "relabel" ? `relabel: ${decision.to}` : decision.action;
}

function makeRow(place) {
  const finding = shown[place];
  const image = data.images[finding.image];
  const row = element("div", "", "row");
  row.setAttribute("role", "listitem");
  row.style.top = `${place * rowHeight()}px`;
  const main = picture(finding.image);
  main.className = "main";
  const text = element("div", "", "text");
  text.append(element("b", finding.title), element("span", finding.detail), element("small", image.path));
  const near = element("div", "", "near");
  for (const [caption, numbers] of finding.near) {
    const group = element("div");
    const pictures = element("div");
    pictures.append(...numbers.map(picture));
    group.append(pictures, element("small", caption));
    near.append(group);
  }
  const buttons = element("div", "", "buttons");
  for (const [action, name] of actionsOf(finding)) {
    const button = element("button", name);
    button.onclick = () => { select(place); decide(action); };
    buttons.append(button);
  }
  buttons.append(element("output", textOf(decisions[finding.id])));
  row.append(main, text, near, buttons);
  row.onclick = () => select(place);
  return row;
}

function actionsOf(finding) {
  if (!finding.decide) return [];
  const relabel = finding.to ? [["relabel", `relabel: ${finding.to} (r)`]] : [];
  return [["keep", "keep (k)"], ...relabel, ["drop", "drop (d)"]];
}

// The height of all rows is the same, so that the place in the list gives the place on the page.
function rowHeight() {
  return parseFloat(getComputedStyle($("list")).getPropertyValue("--row"));
}

function draw() {
  const list = $("list");
  const height = rowHeight();
  const first = Math.max(0, Math.floor(list.scrollTop / height) - MARGIN);
  const last = Math.min(shown.length, Math.ceil((list.scrollTop + list.clientHeight) / height) + MARGIN);
  for (const [place, row] of rows) {
    if (place < first || place >= last) {
      row.remove();
      rows.delete(place);
    }
  }
  for (let place = first; place < last; place += 1) {
    if (!rows.has(place)) {
      rows.set(place, makeRow(place));
      $("space").append(rows.get(place));
    }
    rows.get(place).toggleAttribute("aria-current", place === current);
  }
}

function redraw() {
  rows.forEach((row) => row.remove());
  rows.clear();
  $("space").style.height = `${shown.length * rowHeight()}px`;
  draw();
}

function select(place) {
  current = Math.min(Math.max(place, 0), shown.length - 1);
  const list = $("list");
  const height = rowHeight();
  if (current * height < list.scrollTop) list.scrollTop = current * height;
  const bottom = (current + 1) * height - list.clientHeight;
  if (bottom > list.scrollTop) list.scrollTop = bottom;
  draw();
  report();
}

function report() {
  const finding = shown[current];
  const decided = shown.filter(({ id }) => decisions[id]).length;
  $("status").textContent = finding
    ? `${current + 1} of ${shown.length}, ${decided} decided. ${textOf(decisions[finding.id])}`
    : "";
  $("other").disabled = !finding?.to;
  const files = outputs();
  $("labels").disabled = files.labels.length === 0;
  $("exclude").disabled = files.exclude.length === 0;
}

function decide(action, to = shown[current]?.to) {
  const finding = shown[current];
  if (!finding?.decide || (action === "relabel" && !to)) return;
  if (action) decisions[finding.id] = action === "relabel" ? { action, to } : { action };
  else delete decisions[finding.id];
  store();
  rows.get(current)?.remove();
  rows.delete(current);
  select(action ? current + 1 : current);
}

function show(chosen) {
  kind = chosen;
  shown = data.findings.filter((finding) => finding.kind === kind);
  for (const button of $("kinds").children) button.setAttribute("aria-pressed", button.dataset.kind === kind);
  $("list").scrollTop = 0;
  current = 0;
  redraw();
  report();
}

// The content of both files: rows [path, label], and paths.
function outputs() {
  const dropped = new Set();
  const labels = new Map();
  for (const finding of data.findings) {
    const decision = decisions[finding.id];
    const { path } = data.images[finding.image];
    if (decision?.action === "drop") dropped.add(path);
    if (decision?.action === "relabel") labels.set(path, decision.to);
  }
  return { labels: [...labels].filter(([path]) => !dropped.has(path)), exclude: [...dropped] };
}

// A path that a spreadsheet would run as a formula is the same with "./" before it.
function inFolder(path) {
  return /^\s*[=+\-@\uff1d\uff0b\uff0d\uff20]/.test(path) ? `./${path}` : path;
}

function cell(text) {
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

function save(name, lines) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([lines.map((line) => `${line}\n`).join("")], { type: "text/plain" }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

$("labels").onclick = () => {
  const rows = outputs().labels.map(([path, label]) => [inFolder(path), label]);
  save("labels.csv", [["path", "label"], ...rows].map((row) => row.map(cell).join(",")));
};
$("exclude").onclick = () => save("exclude.txt", outputs().exclude);

for (const name of kinds) {
  const count = data.findings.filter((finding) => finding.kind === name).length;
  const button = element("button", `${name} (${count})`);
  button.dataset.kind = name;
  button.onclick = () => show(name);
  $("kinds").append(button);
}
$("other").append(element("option", "another class"), ...data.classes.map((name) => element("option", name)));
$("other").onchange = () => {
  if ($("other").selectedIndex > 0) decide("relabel", $("other").value);
  $("other").selectedIndex = 0;
  $("list").focus();
};

const keys = {
  ArrowDown: () => select(current + 1),
  ArrowRight: () => select(current + 1),
  ArrowUp: () => select(current - 1),
  ArrowLeft: () => select(current - 1),
  k: () => decide("keep"),
  r: () => decide("relabel"),
  d: () => decide("drop"),
  u: () => decide(null),
};
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.tagName === "SELECT") return;
  const action = keys[event.key];
  if (!action) return;
  event.preventDefault();
  action();
});

let waiting = false;
$("list").onscroll = () => {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => { waiting = false; draw(); });
};
addEventListener("resize", redraw);
document.querySelector("details").open = innerHeight > 600 && innerWidth > 700;
if (kinds.length) show(kinds[0]);
else $("tools").textContent = "Nothing was found.";
document.body.dataset.state = "ready";
