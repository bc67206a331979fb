// The list of findings; a row gets its content when it comes near the view.
const data = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);

// What a kind of copies means, and how two photos are copies: by the names in the table of findings.
const COPIES = {
  leaks: ["Copies in different parts of the data", "A test on one of them would measure what the model knows by heart."],
  conflicts: ["Copies with different labels", "At least one of the labels is wrong."],
  copies: ["Copies", "Together they count twice."],
};
const HOW = {
  exact: "All pixels of both are equal.",
  near: "One is the other, cropped, resized, mirrored, brightened or compressed again.",
  alike: "They look like one scene or one burst.",
};

const kinds = [...new Set(data.findings.map((finding) => finding.kind))];
const decisions = stored();
const past = Object.keys(decisions).map((id) => [id]); // For undo: ids, each with its decision before.
const other = $("choice").content.firstElementChild;
let shown = []; // The findings of the chosen kind.
let current = 0;

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
    return true;
  } catch {
    return false;
  }
}

function element(name, content = "", className = "") {
  const made = document.createElement(name);
  made.append(...[content].flat());
  if (className) made.className = className;
  return made;
}

// A button with its key; `aria-keyshortcuts` tells screen readers.
function buttonOf(text, key, action) {
  const button = element("button", [`${text} `, element("kbd", key)]);
  button.setAttribute("aria-keyshortcuts", key);
  button.onclick = action;
  return button;
}

function imageOf(number) {
  const image = element("img");
  image.src = data.images[number].src;
  image.alt = `${data.images[number].label}: ${data.images[number].path}`;
  return image;
}

function pictureOf(number, beside = []) {
  const button = element("button", imageOf(number), "picture");
  button.title = "Enlarge";
  button.onclick = () => enlarge([...beside, number]);
  return button;
}

function enlarge(numbers) {
  const figures = numbers.map((number) => {
    const { label, path } = data.images[number];
    return element("figure", [imageOf(number), element("figcaption", [element("b", `Labelled ${label}`), element("br"), path])]);
  });
  $("large").firstElementChild.replaceChildren(...figures);
  if (!$("large").open) $("large").showModal();
}

// Returns a heading and a sentence.
function wordsOf({ kind, image, title, detail, to }) {
  const { label } = data.images[image];
  if (kind === "wrong labels") {
    return [`Labelled ${label}. Is it ${to}?`, `A model that was fitted without this photo takes it for ${to}; ${detail}.`];
  }
  if (kind === "shortcuts") {
    return [title, `The class can be read from it without the object, so a model may learn it instead (${detail}).`];
  }
  if (kind === "one color") {
    return [`One colour, labelled ${label}`, "All its pixels are equal: it shows nothing. A 16-bit image may hold values of fewer bits (--bit-depth)."];
  }
  const [heading, meaning] = COPIES[kind];
  return [`${heading}: ${detail}`, `${HOW[title] ?? title} ${meaning}`];
}

function textOf(decision) {
  if (!decision) return "";
  return decision.action === "relabel" ? `relabelled as ${decision.to}` : { keep: "kept", drop: "dropped" }[decision.action];
}

function fill(place) {
  const row = $("list").children[place];
  if (row.childElementCount) return;
  const finding = shown[place];
  const near = finding.near.map(([caption, numbers]) => {
    let text = caption;
    if (finding.kind === "wrong labels") text = `nearest labelled ${caption}`;
    if (finding.other !== null) text = `${caption}, labelled ${data.images[finding.other].label}`;
    return element("div", [element("small", text), element("div", numbers.map((number) => pictureOf(number, [finding.image])))]);
  });
  const isPair = finding.near.length === 1 && finding.near[0][1].length === 1;
  const pictures = element("div", [pictureOf(finding.image), element("div", near, "near")], isPair ? "pictures pair" : "pictures");
  const [heading, sentence] = wordsOf(finding);
  const buttons = element("div", actionsOf(finding).map(([action, text]) => {
    const button = buttonOf(text, action[0], () => { select(place); decide(action); });
    button.dataset.action = action;
    return button;
  }), "controls");
  buttons.append(element("output", "", "done"));
  row.append(pictures, element("div", [element("h3", heading), element("p", sentence), element("small", data.images[finding.image].path), buttons]));
  mark(place);
}

function actionsOf(finding) {
  if (!finding.decide) return [];
  const relabel = finding.to ? [["relabel", `Relabel as ${finding.to}`]] : [];
  return [["keep", "Keep"], ...relabel, ["drop", "Drop"]];
}

// Shows the decision on a row.
function mark(place) {
  const decision = decisions[shown[place].id];
  const row = $("list").children[place];
  for (const button of row.querySelectorAll("[data-action]")) {
    const isProposed = decision?.action !== "relabel" || decision.to === shown[place].to;
    button.setAttribute("aria-pressed", button.dataset.action === decision?.action && isProposed);
  }
  const output = row.querySelector("output");
  if (output) output.textContent = textOf(decision);
}

function select(place, focus = true) {
  const list = $("list").children;
  list[current]?.removeAttribute("aria-current");
  current = Math.min(Math.max(place, 0), shown.length - 1);
  const row = list[current];
  fill(current);
  row.setAttribute("aria-current", "true");
  if (shown[current].to) row.querySelector("output").before(other);
  else other.remove();
  if (focus) {
    row.focus({ preventScroll: true });
    row.scrollIntoView({ behavior: "instant", block: "nearest" });
  }
}

function report(isStored = true) {
  const judged = shown.filter(({ id }) => decisions[id]).length;
  const unsaved = isStored ? "" : ". This browser stores no decisions: save the files before you close the page";
  $("status").textContent = `${judged} of ${shown.length} judged${unsaved}`;
  $("bar").max = shown.length;
  $("bar").value = judged;
  $("undo").disabled = past.length === 0;
  const files = outputs();
  $("labels").disabled = files.labels.length === 0;
  $("exclude").disabled = files.exclude.length === 0;
}

function decide(action, to = shown[current].to) {
  const finding = shown[current];
  if (!finding.decide || (action === "relabel" && !to)) return;
  past.push([finding.id, decisions[finding.id]]);
  decisions[finding.id] = action === "relabel" ? { action, to } : { action };
  mark(current);
  report(store());
  select(current + 1);
}

// Takes back the last decision, and goes to its row.
function undo() {
  if (!past.length) return;
  const [id, before] = past.pop();
  if (before) decisions[id] = before;
  else delete decisions[id];
  const isStored = store();
  const finding = data.findings.find((one) => one.id === id);
  if (finding && finding.kind !== shown[current].kind) show(finding.kind);
  const place = shown.indexOf(finding);
  if (place >= 0) {
    fill(place);
    mark(place);
    select(place);
  }
  report(isStored);
}

const nearView = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) {
    if (!isIntersecting || !target.isConnected) continue;
    nearView.unobserve(target);
    fill([...$("list").children].indexOf(target));
  }
}, { rootMargin: "100%" });

function show(kind) {
  shown = data.findings.filter((finding) => finding.kind === kind);
  for (const button of $("kinds").children) button.setAttribute("aria-pressed", button.dataset.kind === kind);
  nearView.disconnect();
  $("list").replaceChildren(...shown.map((_, place) => {
    const row = element("li", "", "finding panel");
    row.tabIndex = -1;
    row.setAttribute("aria-label", `${place + 1} of ${shown.length}`);
    // Clicks and the key Tab choose the row that they are in; a decision chooses the next one itself.
    const choose = (event, is) => { if (event.target.matches(is) && place !== current) select(place, false); };
    row.onclick = (event) => choose(event, ":not([data-action], [data-action] *)");
    row.addEventListener("focusin", (event) => choose(event, ":focus-visible"));
    nearView.observe(row);
    return row;
  }));
  select(0, false);
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
$("undo").onclick = undo;

for (const name of kinds) {
  const count = data.findings.filter((finding) => finding.kind === name).length;
  const button = element("button", `${name} (${count})`);
  button.dataset.kind = name;
  button.onclick = () => show(name);
  $("kinds").append(button);
}
other.append(element("option", "Another class…"), ...data.classes.map((name) => element("option", name)));
other.onchange = () => {
  const place = other.selectedIndex;
  other.selectedIndex = 0;
  if (place > 0) decide("relabel", data.classes[place - 1]);
};

const keys = {
  ArrowDown: () => select(current + 1),
  ArrowRight: () => select(current + 1),
  ArrowUp: () => select(current - 1),
  ArrowLeft: () => select(current - 1),
  k: () => decide("keep"),
  r: () => decide("relabel"),
  d: () => decide("drop"),
  u: undo,
};
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.tagName === "SELECT") return;
  if (event.key === "e") {
    const { image, other: copy } = shown[current];
    enlarge(copy === null ? [image] : [image, copy]);
  } else if (keys[event.key]) {
    event.preventDefault();
    $("large").close();
    keys[event.key]();
  }
});
$("large").onclick = (event) => { if (event.target === $("large")) $("large").close(); };

document.querySelector("details").open = innerHeight > 600 && innerWidth > 700;
if (kinds.length) show(kinds[0]);
else $("tools").textContent = "Nothing was found.";
document.body.dataset.state = "ready";
