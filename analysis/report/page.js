"use strict";
// The run table (sort, filter), the packed figures, and what a reload keeps: all of it stands in location.hash.

const kept = new URLSearchParams(location.hash.slice(1));
function keep(name, value) {
  if (value) kept.set(name, value);
  else kept.delete(name);
  history.replaceState(null, "", `#${kept}`);
}

// Text that was packed with gzip and base64.
async function unpacked(base64) {
  const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
}

// --- run table ---------------------------------------------------------------------------------------------------

const table = document.querySelector("#run-table");
const heads = table ? [...table.tHead.rows[0].cells] : [];
const rows = table ? [...table.tBodies[0].rows] : [];
const texts = rows.map((row) => [...row.cells].map((cell) => cell.textContent));
const words = rows.map((row) => row.textContent.toLowerCase());

function number(text) {
  return text.trim() === "" ? NaN : Number(text);
}

// Numbers by value, words by letter, missing ones last in both directions, equal ones in the order of the page.
function order(column, descending) {
  const isNumber = heads[column].dataset.kind === "number";
  const keys = texts.map((row) => (isNumber ? number(row[column]) : row[column]));
  const missing = (key) => key === "" || Number.isNaN(key);
  const compare = new Intl.Collator("en", { numeric: true }).compare;
  const sign = descending ? -1 : 1;
  return rows.map((_, index) => index).sort((a, b) => {
    if (missing(keys[a]) || missing(keys[b])) return missing(keys[a]) - missing(keys[b]) || a - b;
    return sign * (isNumber ? keys[a] - keys[b] : compare(keys[a], keys[b])) || a - b;
  });
}

function sort(column, descending) {
  heads.forEach((head, index) => head.setAttribute("aria-sort", index !== column ? "none" : descending ? "descending" : "ascending"));
  table.tBodies[0].append(...order(column, descending).map((index) => rows[index]));
}

function sorted(event) {
  const head = event.target.closest("th");
  const descending = head.getAttribute("aria-sort") === "ascending";
  sort(heads.indexOf(head), descending);
  keep("sort", (descending ? "-" : "") + head.dataset.name);
}

// The column, or the value that all runs share, under its name, a group's (method is method.name) or the last part of it.
function setting(name) {
  const shared = JSON.parse(table.dataset.shared);
  const legal = [...heads.map((head) => head.dataset.name), ...Object.keys(shared)];
  const ends = legal.filter((item) => item.split(".").pop() === name);
  const found = legal.includes(name) ? name : legal.includes(`${name}.name`) ? `${name}.name` : ends.length === 1 ? ends[0] : null;
  if (found === null) throw new Error(ends.length ? `${name} is ambiguous: ${ends.join(", ")}` : `no setting ${name}`);
  const column = heads.findIndex((head) => head.dataset.name === found);
  return column >= 0 ? (row) => row[column] : () => shared[found];
}

function same(value, wanted) {
  return value === wanted || (number(value) === number(wanted) && !Number.isNaN(number(value)));
}

// The grammar of --where: name=value,value and name=value; a word without a sign may stand anywhere in the row.
function tests(filter) {
  return filter.trim().split(/\s+/).filter(Boolean).map((part) => {
    const sign = part.indexOf("=");
    if (sign < 1) return (index) => words[index].includes(part.toLowerCase());
    const value = setting(part.slice(0, sign));
    const wanted = part.slice(sign + 1);
    const whole = texts.some((row) => value(row) === wanted); // a list has commas of its own
    const values = whole ? [wanted] : wanted.split(",");
    return (index) => values.some((each) => same(value(texts[index]), each));
  });
}

function filter(text) {
  const count = document.querySelector("#run-count");
  let fulfilled = [];
  let problem = "";
  try {
    fulfilled = tests(text);
  } catch (error) {
    problem = `; ${error.message}`;
  }
  let shown = 0;
  rows.forEach((row, index) => {
    const fits = !problem && fulfilled.every((test) => test(index));
    if (row.hidden === fits) row.hidden = !fits;
    shown += fits;
  });
  count.textContent = `${shown} of ${rows.length} runs${problem}`;
  keep("filter", text.trim());
}

if (table) {
  const box = document.querySelector("#run-filter");
  box.value = kept.get("filter") || "";
  box.addEventListener("input", () => filter(box.value));
  filter(box.value);
  heads.forEach((head) => head.querySelector("button").addEventListener("click", sorted));
  const [, descending, name] = /^(-?)(.*)$/.exec(kept.get("sort") || "");
  const column = heads.findIndex((head) => head.dataset.name === name);
  if (name && column >= 0) sort(column, descending === "-");
  const all = document.querySelector("#run-all");
  const wide = () => table.classList.toggle("all", all.checked);
  if (all) {
    all.checked = kept.has("all");
    all.addEventListener("change", () => { wide(); keep("all", all.checked ? "yes" : ""); });
    wide();
  }
}

// --- figures, sections, reload -----------------------------------------------------------------------------------

async function draw() {
  for (const image of document.querySelectorAll("img[data-packed]")) {
    image.src = `data:image/svg+xml,${encodeURIComponent(await unpacked(image.dataset.packed))}`;
    image.removeAttribute("data-packed");
  }
  document.body.dataset.figures = "drawn";
}
draw();

// What was opened or closed against the page's own choice.
const turned = new Set((kept.get("turned") || "").split(",").filter(Boolean));
document.querySelectorAll("details[id]").forEach((part) => {
  const usual = part.open;
  if (turned.has(part.id)) part.open = !usual;
  part.addEventListener("toggle", () => {
    if (part.open === usual) turned.delete(part.id);
    else turned.add(part.id);
    keep("turned", [...turned].join(","));
  });
});
window.addEventListener("beforeprint", () => document.querySelectorAll("main > details").forEach((part) => { part.open = true; }));

document.querySelectorAll("nav a").forEach((link) => link.addEventListener("click", (event) => {
  event.preventDefault(); // the hash keeps what was chosen
  document.querySelector(link.getAttribute("href")).scrollIntoView();
}));

// While the page is refreshed from outside: look again, unless somebody is typing.
const every = Number(document.body.dataset.every || 0);
if (every) {
  setInterval(() => {
    const active = document.activeElement;
    if (!active || active.tagName !== "INPUT") location.reload();
  }, 1000 * every);
}
