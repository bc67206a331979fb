// The list of cards; a card gets its content when it comes near the view.
const data = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);

// What a kind of copies means, and how photos are copies: by the names in the table of findings.
const COPIES = {
  leaks: ["Copies in different parts of the data", "A test on one of them measures what the model knows by heart."],
  conflicts: ["Copies with different labels", "If they show one thing, some of the labels are wrong."],
  copies: ["Copies", "Each of them counts in training."],
};
const HOW = {
  exact: "All pixels are equal.",
  near: "The pixels are equal up to a crop, size, mirroring, brightness or compression.",
  alike: "They look like one scene or one burst.",
};
const DOUBTS = "wrong labels";
const DRAWN = "drawn at random"; // The list of the doubts that a person judges for an estimate.

const { decisions, draw } = stored(); // By the id of a card; the ids of the draw, and of how many.
const past = Object.keys(decisions).map((id) => [[id]]); // For undo: each step's ids with their decision before.
const other = $("choice").content.firstElementChild;
let shown = []; // The cards of the chosen list.
let current = 0;

function stored() {
  const none = { decisions: {}, draw: { ids: [], of: 0 } };
  try {
    return { ...none, ...JSON.parse(localStorage.getItem(data.key)) };
  } catch {
    return none; // Without storage the decisions last as long as the page.
  }
}

function store() {
  try {
    localStorage.setItem(data.key, JSON.stringify({ decisions, draw }));
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

// Returns the cards of a list.
function cardsOf(kind) {
  return data.cards.filter((card) => (kind === DRAWN ? draw.ids.includes(card.id) : card.kind === kind));
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
function wordsOf({ kind, images, title, detail, choices }) {
  const { label } = data.images[images[0]];
  if (kind === DOUBTS) {
    return [`Labelled ${label}. Is it ${choices[0]}?`, `A model that was fitted without this photo takes it for ${choices[0]} (${detail}).`];
  }
  if (kind === "one color") {
    return [`One colour, labelled ${label}`, "All its pixels are equal: it shows nothing. A 16-bit image may hold values of fewer bits (--bit-depth)."];
  }
  if (kind === "shortcuts") {
    return [`${title} is given away by ${detail}`, "A model may learn it instead of the object. It may be harmless, if it is the object itself that reaches there."];
  }
  const [heading, meaning] = COPIES[kind];
  const how = title.split(", ").map((one) => HOW[one] ?? one).join(" ");
  return [`${heading}: ${detail}`, `${how} ${meaning}`];
}

function textOf(card, decision) {
  if (!decision) return "";
  if (decision.action === "relabel") return `relabelled as ${decision.to}`;
  if (decision.action === "only") return `kept only ${decision.path}`;
  const all = card.images.length > 1 ? "all " : "";
  return all + { keep: "kept", drop: "dropped" }[decision.action];
}

// Returns the photos of a card: all of a group in a row, or one with the nearest others.
function picturesOf(card, place) {
  if (card.images.length > 1) {
    const pictured = card.images.filter((number) => data.images[number].src);
    const photos = pictured.map((number) => {
      const { path, label, part } = data.images[number];
      const button = element("button", "Drop the others");
      button.dataset.action = "only";
      button.dataset.path = path;
      button.onclick = () => { select(place); decide("only", { path }); };
      const caption = element("figcaption", [element("b", label), part ? ` in ${part}` : "", element("br"), element("small", path), element("br"), button]);
      return element("figure", [pictureOf(number, pictured.filter((one) => one !== number)), caption]);
    });
    const more = card.images.length - pictured.length;
    return element("div", more ? [...photos, element("small", `and ${more} more photos`)] : photos, "group");
  }
  const near = card.near.map(([caption, numbers]) => {
    const text = card.kind === DOUBTS ? `nearest labelled ${caption}` : caption;
    return element("div", [element("small", text), element("div", numbers.map((number) => pictureOf(number, card.images)))]);
  });
  return element("div", [pictureOf(card.images[0]), element("div", near, "near")], "pictures");
}

function fill(place) {
  const row = $("list").children[place];
  if (row.childElementCount) return;
  const card = shown[place];
  const [heading, sentence] = wordsOf(card);
  const buttons = element("div", actionsOf(card).map(([action, text, key, to]) => {
    const act = () => { select(place); decide(action, { to }); };
    const button = key ? buttonOf(text, key, act) : element("button", text);
    button.onclick = act;
    button.dataset.action = action;
    if (to) button.dataset.to = to;
    return button;
  }), "controls");
  buttons.append(element("output", "", "done"));
  const path = card.images.length > 1 ? [] : [element("small", data.images[card.images[0]].path)];
  row.classList.toggle("wide", card.images.length > 1);
  row.append(picturesOf(card, place), element("div", [element("h3", heading), element("p", sentence), ...path, buttons]));
  mark(place);
}

// Returns the buttons below a card: the action, its text, key and class.
function actionsOf(card) {
  if (!card.decide) return [];
  const relabel = card.choices.map((to, place) => ["relabel", `Relabel as ${to}`, place ? "" : "r", to]);
  return [["keep", card.images.length > 1 ? "Keep all" : "Keep", "k"], ...relabel, ["drop", card.images.length > 1 ? "Drop all" : "Drop", "d"]];
}

// Shows the decision on a row.
function mark(place) {
  const decision = decisions[shown[place].id];
  const row = $("list").children[place];
  for (const button of row.querySelectorAll("[data-action]")) {
    const { action, to, path } = button.dataset;
    button.setAttribute("aria-pressed", action === decision?.action && to === decision.to && path === decision.path);
  }
  const output = row.querySelector("output");
  if (output) output.textContent = textOf(shown[place], decision);
}

function select(place, focus = true) {
  const list = $("list").children;
  list[current]?.removeAttribute("aria-current");
  current = Math.min(Math.max(place, 0), shown.length - 1);
  const row = list[current];
  fill(current);
  row.setAttribute("aria-current", "true");
  if (shown[current].choices.length) row.querySelector("output").before(other);
  else other.remove();
  if (focus) {
    row.focus({ preventScroll: true });
    row.scrollIntoView({ behavior: "instant", block: "nearest" });
  }
}

const isWrong = ({ id }) => decisions[id] && decisions[id].action !== "keep";

// Returns what a person has counted among doubts, and of a finished draw what follows for all.
function counted() {
  const judged = shown.filter(({ id }) => decisions[id]);
  const wrong = judged.filter(isWrong).length;
  const line = `${wrong} of the ${judged.length} that you looked at were wrong`;
  const ids = draw.ids.filter((id) => decisions[id]);
  if (!ids.length || ids.length < draw.ids.length) return line;
  const found = ids.filter((id) => isWrong({ id })).length;
  const [low, high] = data.intervals[found];
  const least = Math.max(found, Math.ceil(low * draw.of - 1e-9));
  const most = Math.min(draw.of - (data.drawn - found), Math.floor(high * draw.of + 1e-9));
  return `${line}. ${found} of ${data.drawn} drawn at random were wrong: about ${Math.round(found / data.drawn * draw.of)} of all ${draw.of} (${least} to ${most}, 95% interval)`;
}

function report(isStored = true) {
  const judged = shown.filter(({ id }) => decisions[id]).length;
  const isOfDoubts = shown[0].kind === DOUBTS;
  const counts = isOfDoubts && judged ? `. ${counted()}` : "";
  const unsaved = isStored ? "" : ". This browser stores no decisions: save the files before you close the page";
  $("status").textContent = `${judged} of ${shown.length} judged${counts}${unsaved}`;
  $("bar").max = shown.length;
  $("bar").value = judged;
  $("undo").disabled = past.length === 0;
  $("draw").hidden = !isOfDoubts || draw.ids.length > 0 || undecided(DOUBTS).length <= data.drawn;
  $("one").hidden = !["leaks", "copies"].includes(shown[0].kind);
  $("one").disabled = !undecided(shown[0].kind).length;
  const files = outputs();
  $("labels").disabled = files.labels.length === 0;
  $("exclude").disabled = files.exclude.length === 0;
}

function undecided(kind) {
  return cardsOf(kind).filter(({ id }) => !decisions[id]);
}

// Draws the doubts that are judged for an estimate, and shows them alone.
function drawTen() {
  const from = undecided(DOUBTS);
  draw.of = from.length;
  while (draw.ids.length < data.drawn) {
    draw.ids.push(...from.splice(Math.floor(Math.random() * from.length), 1).map(({ id }) => id));
  }
  store();
  listKinds();
  show(DRAWN);
}

// Decides several cards in one step, which one undo takes back.
function setDecisions(entries) {
  past.push(entries.map(([id]) => [id, decisions[id]]));
  for (const [id, decision] of entries) decisions[id] = decision;
}

function decide(action, { to, path } = {}) {
  const card = shown[current];
  const isPossible = action !== "relabel" || to;
  if (!card.decide || !isPossible) return;
  setDecisions([[card.id, { action, ...(to && { to }), ...(path && { path }) }]]);
  mark(current);
  report(store());
  select(current + 1);
}

// Keeps the first photo of each group of the list that has no decision.
function keepOneOfEach() {
  const first = ({ images }) => ({ action: "only", path: data.images[images[0]].path });
  setDecisions(undecided(shown[0].kind).map((card) => [card.id, first(card)]));
  shown.forEach((_, place) => mark(place));
  report(store());
}

// Takes back the last step, and goes to its card.
function undo() {
  if (!past.length) return;
  const step = past.pop();
  for (const [id, before] of step) {
    if (before) decisions[id] = before;
    else delete decisions[id];
  }
  const isStored = store();
  const [[id]] = step;
  const card = data.cards.find((one) => one.id === id);
  if (card && !shown.includes(card)) show(card.kind);
  shown.forEach((_, place) => mark(place));
  const place = shown.indexOf(card);
  if (place >= 0) select(place);
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
  shown = cardsOf(kind);
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
  for (const card of data.cards) {
    const decision = decisions[card.id];
    for (const { path, label } of card.images.map((number) => data.images[number])) {
      if (decision?.action === "drop" || (decision?.action === "only" && decision.path !== path)) dropped.add(path);
      if (decision?.action === "relabel" && decision.to !== label) labels.set(path, decision.to);
    }
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

$("draw").onclick = drawTen;
$("one").onclick = keepOneOfEach;

// Makes a button for each list, and returns their names.
function listKinds() {
  const kinds = [...new Set(data.cards.map((card) => card.kind))];
  if (draw.ids.length) kinds.splice(kinds.indexOf(DOUBTS) + 1, 0, DRAWN);
  $("kinds").replaceChildren(...kinds.map((name) => {
    const button = element("button", `${name} (${cardsOf(name).length})`);
    button.dataset.kind = name;
    button.onclick = () => show(name);
    return button;
  }));
  return kinds;
}

other.append(element("option", "Another class…"), ...data.classes.map((name) => element("option", name)));
other.onchange = () => {
  const place = other.selectedIndex;
  other.selectedIndex = 0;
  if (place > 0) decide("relabel", { to: data.classes[place - 1] });
};

const keys = {
  ArrowDown: () => select(current + 1),
  ArrowRight: () => select(current + 1),
  ArrowUp: () => select(current - 1),
  ArrowLeft: () => select(current - 1),
  k: () => decide("keep"),
  r: () => decide("relabel", { to: shown[current].choices[0] }),
  d: () => decide("drop"),
  u: undo,
};
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.tagName === "SELECT") return;
  if (event.key === "e") {
    enlarge(shown[current].images.filter((number) => data.images[number].src));
  } else if (keys[event.key]) {
    event.preventDefault();
    $("large").close();
    keys[event.key]();
  }
});
$("large").onclick = (event) => { if (event.target === $("large")) $("large").close(); };

document.querySelector("details").open = innerHeight > 600 && innerWidth > 700;
const [first] = listKinds();
if (first) show(first);
else $("tools").textContent = "Nothing was found.";
document.body.dataset.state = "ready";
