// Chooses, compares and lists the marks of the page. The URL keeps the choice. All numbers but the ratio are text.
{
const {marks, families} = window.benchbook;
const SHOWN_AT_FIRST = 24;
const byId = (id) => document.getElementById(id);
const form = byId("choice");
const field = (name) => form.elements[name];
const NAMES = ["have", "consider", "train", "precision", "devices"];
let showsAll = false;

const made = (tag, text, name = "") => Object.assign(document.createElement(tag), {textContent: text, className: name});
const certain = (mark) => mark.source !== "predicted";
const rank = (mark) => [certain(mark) ? 0 : 1, mark.seconds];
const order = (a, b) => rank(a)[0] - rank(b)[0] || rank(a)[1] - rank(b)[1];
const words = (text) => text.toLowerCase().split(/[\s,]+/).filter(Boolean);
const matches = (mark, text) => words(text).every((word) => mark.name.toLowerCase().includes(word));
const memory = (mark) => mark.memory_gb && `${+mark.memory_gb.toPrecision(3)} GB`;
const [least, most] = ["low", "high"].map((end) => (mark) => mark[end] ?? mark.seconds);
const digits = (ratio) => ratio >= 100 ? ratio.toFixed(0) : ratio.toPrecision(ratio >= 1 && ratio < 2 ? 3 : 2);

// The marks of the task and precision: in the fastest precision, one for each machine or chip.
function chosen() {
  const own = marks.filter((mark) => mark.task === field("train").value);
  if (field("precision").value !== "best") return own.filter((mark) => mark.family === field("precision").value);
  const best = {};
  for (const mark of own.sort(order)) best[mark.name] ??= mark;
  return Object.values(best);
}
// The mark that a text names: the shortest name, so that "M1" is not "M1 Max".
const find = (own, text) => text.trim() &&
  own.filter((mark) => matches(mark, text)).sort((a, b) => a.name.length - b.name.length || order(a, b))[0];

function fill(side, mark) {
  for (const cell of byId("card").querySelectorAll(`.${side}`)) {
    const key = cell.parentElement.dataset.line ?? "name";
    cell.textContent = !mark ? "" : key === "precision" ? families[mark.family]
      : key === "basis" ? `${mark.source}: ${mark.basis}`
      : key === "memory" ? memory(mark) ?? "unknown" : mark[key] ?? "unknown";
  }
}
// The ratio of two times, with the least and most that their bounds allow.
function ratio(have, consider) {
  if (!have || !consider || have === consider) return "";
  const [fast, slow] = have.seconds <= consider.seconds ? [have, consider] : [consider, have];
  const [value, low, high] = [slow.seconds / fast.seconds, least(slow) / most(fast), most(slow) / least(fast)];
  const kinds = have.source === consider.source ? `both ${have.source}` : `${fast.source} against ${slow.source}`;
  const precision = have.family === consider.family ? "" : `; ${families[fast.family]} against ${families[slow.family]}`;
  const bounds = low === high ? "without bounds" : `${digits(low)} to ${digits(high)}`;
  const undecided = low <= 1 && low !== high ? ", so that which is faster is undecided" : "";
  return `${fast.name} is ${digits(value)} times as fast as ${slow.name} (${bounds})${undecided}; ${kinds}${precision}.`;
}
function options() {
  const own = marks.filter((mark) => mark.task === field("train").value);
  const known = new Set(own.map((mark) => mark.family));
  for (const option of field("precision").options) option.disabled = option.value !== "best" && !known.has(option.value);
  if (field("precision").selectedOptions[0].disabled) field("precision").value = [...known][0];
  const devices = field("devices").value;
  const counts = [...new Set(own.map((mark) => mark.devices))].sort((a, b) => a - b);
  field("devices").replaceChildren(...counts.map((count) => made("option", `${count} device${count > 1 ? "s" : ""}`)),
    made("option", "any number"));
  [...field("devices").options].forEach((option, place) => { option.value = counts[place] ?? ""; });
  field("devices").value = devices;
  if (field("devices").selectedIndex < 0) field("devices").selectedIndex = 0;
  byId("names").replaceChildren(...[...new Set(own.map((mark) => mark.name))].map((name) => made("option", name)));
  for (const note of document.querySelectorAll("[data-task]")) note.hidden = note.dataset.task !== field("train").value;
}
function update() {
  options();
  const every = chosen();
  const devices = field("devices").value;
  const [have, consider] = ["have", "consider"].map((name) => find(every, field(name).value));
  const listed = every.filter((mark) => !devices || mark.devices === Number(devices)).sort(order);
  const first = have ?? listed.find((mark) => mark.here);
  if (listed.includes(first)) listed.unshift(...listed.splice(listed.indexOf(first), 1));
  const shown = showsAll ? listed : listed.slice(0, SHOWN_AT_FIRST);
  fill("have", have);
  fill("consider", consider);
  byId("card").hidden = !have && !consider;
  byId("ratio").textContent = ratio(have, consider);
  const missing = ["have", "consider"].filter((name) => field(name).value.trim() && !find(every, field(name).value));
  byId("none").hidden = !missing.length;
  byId("none").textContent = missing.map((name) =>
    `No time of “${field(name).value}” is known for this task in this precision.`).join(" ");
  byId("list").querySelector("tbody").replaceChildren(...shown.map((mark) => {
    const row = made("tr", "", mark.source);
    const name = made("th", mark.name);
    name.scope = "row";
    if (mark.here) name.append(made("small", " your kind of machine"));
    row.append(name, ...[mark.time, families[mark.family], memory(mark), mark.price].map((text) => made("td", text ?? "")),
      made("td", `${mark.source}: ${mark.basis}`));
    return row;
  }));
  byId("more").hidden = listed.length <= SHOWN_AT_FIRST;
  byId("more").textContent = showsAll ? `Show the first ${SHOWN_AT_FIRST}` : `Show all ${listed.length}`;
  const choice = new URLSearchParams(NAMES.map((name) => [name, field(name).value]).filter(([, value]) => value));
  history.replaceState(null, "", `#${choice}`);
}
function recall() {
  const choice = new URLSearchParams(location.hash.slice(1));
  for (const name of NAMES) if (choice.has(name)) field(name).value = choice.get(name);
  options();
  field("devices").value = choice.get("devices") ?? "1";
  if (!choice.has("have")) field("have").value = marks.find((mark) => mark.here && mark.task === field("train").value)?.name ?? "";
  if (!choice.has("consider") && !choice.has("have")) field("consider").value = "NVIDIA RTX 4090";
}

recall();
form.hidden = byId("list").hidden = false;
update();
form.addEventListener("input", update);
form.addEventListener("submit", (event) => event.preventDefault());
byId("more").addEventListener("click", () => { showsAll = !showsAll; update(); });
addEventListener("hashchange", () => { recall(); update(); });
}
