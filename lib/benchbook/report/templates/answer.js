// The table is the picture: this shows another quantity, filters, sorts and compares, and keeps the choice in the address.
{
const told = JSON.parse(document.getElementById("told").textContent);
const form = document.getElementById("choice");
const table = document.getElementById("marks");
const more = document.getElementById("more");
const SHOWN_AT_FIRST = innerWidth < 800 ? 12 : 24;
const JOULES_PER_KWH = 3.6e6, HOURS_PER_YEAR = 365 * 24;
const numbers = ["seconds", "low", "high", "joules", "rent", "purchase", "memoryGb", "count"];
const rows = [...table.tBodies[0].rows].map((element) => {
  const row = {element, ...element.dataset, apart: element.classList.contains("apart"), here: element.classList.contains("here")};
  for (const name of numbers) row[name] = row[name] === undefined ? null : Number(row[name]);
  row.source = ["measured", "published", "predicted"].find((source) => element.classList.contains(source));
  row.watts = row.joules === null ? null : row.joules / row.seconds;
  row.curve = row.curve && JSON.parse(row.curve);
  return row;
});
let everything = false;

// Numbers as a reader says them: two digits, three from 100 on.
function number(value) {
  for (const [size, word] of [[1e12, "trillion"], [1e9, "billion"], [1e6, "million"]])
    if (value >= 0.9995 * size) return `${number(value / size)} ${word}`;
  if (value === 0) return "0";
  const digits = value >= 100 ? 3 : 2;
  const rounded = Number(value.toPrecision(digits));
  const places = Math.max(0, digits - 1 - Math.floor(Math.log10(rounded)));
  return rounded.toLocaleString("en", {minimumFractionDigits: places, maximumFractionDigits: places});
}
function duration(seconds) {
  if (seconds < 0.1) return `${number(seconds * 1e3)} ms`;
  const [unit, length] = [["s", 1, 120], ["min", 60, 7200], ["h", 3600, 172800], ["days", 86400, Infinity]].find((one) => seconds < one[2]);
  return `${number(seconds / length)} ${unit}`;
}
const dollars = (value) => `$${number(value)}`;
function energy(joules) {
  const hours = joules / 3600;
  const [size, unit] = [[1e6, "MWh"], [1e3, "kWh"], [1, "Wh"], [1e-3, "mWh"]].find(([least]) => hours >= least || least === 1e-3);
  return `${number(hours / size)} ${unit}`;
}
const say = {time: duration, rented: dollars, bought: dollars, electricity: dollars, energy};

// What a row takes of a quantity, as a multiple of its time: all bounds are those of the time.
function perSecond(row, quantity) {
  const paid = row.watts === null ? null : row.watts / JOULES_PER_KWH * value("kwh", 0);
  const hours = value("years", 3) * HOURS_PER_YEAR * value("hours", 24) / 24;
  return {
    time: 1,
    rented: row.rent === null ? null : row.rent / 3600,
    bought: row.purchase === null ? null : row.purchase / hours / 3600 + (paid ?? 0),
    electricity: paid,
    energy: row.watts,
  }[quantity];
}
const field = (name) => form.elements[name];
const value = (name, otherwise) => {
  const stated = field(name) ? parseFloat(field(name).value) : NaN;
  return Number.isFinite(stated) && stated >= 0 ? stated : otherwise;
};

// One's own network: between the numbers of operations at which rates were predicted, along straight lines of logarithms.
function interpolate(curve, name, operations) {
  const [x, y] = [curve.operations.map(Math.log), curve[name].map(Math.log)];
  const at = Math.log(Math.min(Math.max(operations, curve.operations[0]), curve.operations.at(-1)));
  const place = Math.min(x.length - 2, Math.max(0, x.findLastIndex((each) => each <= at)));
  return Math.exp(y[place] + (at - x[place]) / (x[place + 1] - x[place]) * (y[place + 1] - y[place]));
}
function train() {
  const operations = value("operations", null), images = value("images", told.images);
  for (const row of rows.filter((each) => each.curve)) {
    for (const name of ["seconds", "low", "high"])
      row[name] = interpolate(row.curve, name, operations || told.operations) * images / told.images;
  }
}

function passes(row) {
  const text = `${row.name} ${row.source} ${row.kind}`.toLowerCase();
  const words = field("find").value.toLowerCase().split(/[,;]/).map((each) => each.trim()).filter(Boolean);
  return (!words.length || words.some((each) => each.split(/\s+/).every((word) => text.includes(word))))
    && (!field("kind").value || row.kind === field("kind").value)
    && (!field("family").value || row.family === field("family").value)
    && field(row.source).checked
    && row.count <= value("devices", Infinity)
    && (value("memory", 0) === 0 || row.memoryGb >= value("memory", 0))
    && (value("rent", 0) === 0 || row.rent !== null && row.rent <= value("rent", 0))
    && (value("purchase", 0) === 0 || row.purchase !== null && row.purchase <= value("purchase", 0));
}

function steps(values, candidates) {
  const least = Math.min(...values), most = Math.max(...values);
  const first = candidates.findLast((each) => each <= least) ?? candidates[0];
  const last = candidates.find((each) => each >= most && each > first) ?? candidates.at(-1);
  const inside = candidates.filter((each) => first <= each && each <= last);
  const apart = Math.ceil((inside.length - 1) / told.most);
  return apart > 1 ? [...inside.slice(0, -1).filter((_, place) => place % apart === 0), last] : inside;
}

function draw(quantity, shown, base) {
  const at = (row) => [row.seconds, row.low ?? row.seconds, row.high ?? row.seconds].map((each) => each * perSecond(row, quantity));
  const ticks = shown.length ? steps(shown.flatMap(at), quantity === "time" ? told.time : quantity === "energy" ? told.decades.map((each) => each * 3600) : told.decades) : [1, 10];
  const share = (each) => 100 * Math.log(each / ticks[0]) / Math.log(ticks.at(-1) / ticks[0]);
  table.dataset.show = quantity === "electricity" ? "bought" : quantity;
  table.querySelector(".ticks").replaceChildren(...ticks.map((each) => Object.assign(document.createElement("i"), {textContent: say[quantity](each), style: `left:${share(each)}%`})));
  for (const row of shown) {
    const [middle, low, high] = at(row);
    for (const name of ["time", "rented", "bought", "energy"]) {
      const kind = name === "bought" && quantity === "electricity" ? quantity : name;
      const factor = perSecond(row, kind);
      row.element.querySelector(`td.${name}`).textContent = factor === null ? "" : say[kind](row.seconds * factor);
    }
    if (base && base !== row) {
      const ratio = middle / (base.seconds * perSecond(base, quantity));
      const [less, more] = quantity === "time" ? ["faster", "slower"] : ["less", "more"];
      const textContent = ratio < 1 ? `${number(1 / ratio)} x ${less}` : `${number(ratio)} x ${more}`;
      row.element.querySelector(`td.${table.dataset.show}`).append(Object.assign(document.createElement("small"), {textContent}));
    }
    const line = row.element.querySelector(".track b");
    if (line) Object.assign(line.style, {left: `${share(low)}%`, width: `${share(high) - share(low)}%`});
    row.element.querySelector(".track a").style.left = `${share(middle)}%`;
  }
  table.querySelector("th.bought").textContent = quantity === "electricity" ? "Electricity" : "Bought";
}

const least = (some, measure) => some.reduce((best, row) => best && measure(best) <= measure(row) ? best : row, null);
function sentences(compared, base) {
  const costs = (quantity) => (row) => row.seconds * perSecond(row, quantity);
  const [rentable, buyable, read] = ["rented", "bought", "energy"].map((name) => compared.filter((row) => perSecond(row, name) !== null));
  const fastest = least(compared, (row) => row.seconds), renting = least(rentable, costs("rented")), frugal = least(read, costs("energy"));
  const word = base?.here ? "this machine" : base?.name;
  let compare = "";
  if (base && base !== fastest) compare = `; ${word} takes ${duration(base.seconds)}, ${number(base.seconds / fastest.seconds)} times as long`;
  const said = [
    fastest ? `${fastest.name} takes ${duration(fastest.seconds)} to ${told.does} (${fastest.basis})${compare}.` : "no machine is left.",
    renting ? `renting ${renting.name}, ${dollars(costs("rented")(renting))} (${dollars(renting.rent)} an hour: ${renting.rentNote}).` : "of none of these machines a price by the hour was read.",
    frugal ? `${frugal.name}, ${energy(costs("energy")(frugal))}, of the ${read.length} with a sensor (${frugal.energyNote.split(";")[0]}).` : "not known: of none of these machines a sensor was read.",
    buyOrRent(base, renting, least(buyable, costs("bought")), word),
  ];
  document.querySelectorAll("#sentences dd").forEach((element, place) => { element.textContent = said[place]; });
}
function buyOrRent(base, renting, cheapest, word) {
  if (!renting) return "no price by the hour to hold a purchase against.";
  const owned = base ? base.purchase !== null && base : cheapest;
  if (owned) {
    const saved = renting.rent * renting.seconds / owned.seconds - (owned.watts ?? 0) * 3600 / JOULES_PER_KWH * value("kwh", 0);
    const after = saved > 0 ? `after ${number(owned.purchase / saved)} hours of this work` : "never";
    return `${owned.name}, bought at ${dollars(owned.purchase)} (${owned.purchaseNote.split(",")[0]}), has cost as much as renting ${renting.name} ${after}${owned.watts === null ? ", electricity not counted" : ""}.`;
  }
  if (base) return `what ${word} does in an hour costs ${dollars(renting.rent * renting.seconds / base.seconds)} on a rented ${renting.name}.`;
  return "no purchase price was read.";
}

const named = () => [...form.elements].filter((element) => element.name);
function remember() {
  const choice = new URLSearchParams();
  for (const element of named()) {
    if (element.type === "checkbox" ? !element.checked : element.value !== (element.dataset.first ?? ""))
      choice.set(element.name, element.type === "checkbox" ? "no" : element.value);
  }
  const text = choice.toString();
  if (text || location.hash.includes("=")) history.replaceState(null, "", text ? `#${text}` : location.pathname + location.search);
  choice.delete("with");
  for (const link of document.querySelectorAll(".tasks a"))
    link.setAttribute("href", [link.getAttribute("href").split("#")[0], choice.toString()].filter(Boolean).join("#"));
}
function recall() {
  const choice = new URLSearchParams(location.hash.includes("=") ? location.hash.slice(1) : "");
  for (const element of named()) {
    const kept = choice.get(element.name);
    if (element.type === "checkbox") element.checked = kept !== "no";
    else element.value = kept ?? element.dataset.first ?? "";
    if (element.tagName === "SELECT" && element.selectedIndex < 0) element.value = element.dataset.first ?? "";
  }
  if (["kind", "family", "measured", "published", "predicted", "devices", "memory", "rent", "purchase", "years", "hours", "kwh", "sort"].some((name) => choice.has(name))) form.querySelector("details").open = true;
}

function update() {
  const quantity = field("show").value;
  train();
  const base = rows.find((row) => row.element.id === field("with").value);
  const passing = rows.filter((row) => passes(row));
  const has = (row) => perSecond(row, quantity) !== null;
  const measure = (row) => row.seconds * perSecond(row, quantity);
  const order = field("sort").value === "name" ? (a, b) => a.name.localeCompare(b.name, "en", {numeric: true}) : (a, b) => measure(a) - measure(b);
  const drawn = rows.filter((row) => (passing.includes(row) || row === base || row.here) && has(row)).sort(order);
  const sure = [...drawn.filter((row) => row.source !== "predicted"), ...drawn.filter((row) => row.source === "predicted")];
  const first = new Set(everything ? drawn : sure.slice(0, SHOWN_AT_FIRST));
  const shown = drawn.filter((row) => first.has(row) || row === base || row.here);
  for (const row of rows) { row.element.hidden = !shown.includes(row); row.element.classList.toggle("base", row === base); }
  table.tBodies[0].append(...shown.map((row) => row.element));
  draw(quantity, shown, base && has(base) ? base : null);
  sentences([...new Set([...passing, ...(base ? [base] : [])])].filter((row) => !row.apart), base);
  const left = drawn.length - shown.length;
  more.hidden = !left && !everything;
  more.textContent = everything ? `Show the first ${SHOWN_AT_FIRST}` : `Show all ${drawn.length}`;
  document.getElementById("count").textContent = shown.length ? `${shown.length} of ${rows.length} shown.` : "No machine of this task passes; other tasks have others.";
  remember();
}

for (const row of [...rows].sort((a, b) => a.name.localeCompare(b.name, "en", {numeric: true})))
  field("with").append(new Option(row.family === "half" ? `${row.name}, 16 bits` : row.name, row.element.id));
for (const element of named()) {
  if (element.type !== "checkbox") element.dataset.first = element.defaultValue ?? (element.name === "show" ? "time" : "");
}
field("with").dataset.first = rows.find((row) => row.here && !row.apart)?.element.id ?? "";
document.querySelector(".tasks [aria-current]").scrollIntoView({inline: "center", block: "nearest"});
form.hidden = false;
form.addEventListener("input", update);
form.addEventListener("submit", (event) => event.preventDefault());
form.addEventListener("reset", (event) => {
  event.preventDefault();
  history.replaceState(null, "", location.pathname + location.search);
  recall();
  update();
});
more.addEventListener("click", () => { everything = !everything; update(); });
table.addEventListener("click", (event) => {  // a mark opens what stands behind it
  const mark = event.target.closest(".track a");
  if (!mark) return;
  event.preventDefault();
  const about = mark.closest("tr").querySelector("details");
  about.open = !about.open;
  about.querySelector("summary").focus();
});
addEventListener("hashchange", () => { if (location.hash.includes("=")) { recall(); update(); } });
recall();
update();
const target = document.getElementById(location.hash.slice(1));
if (target?.matches("tr")) { target.hidden = false; target.querySelector("details").open = true; target.scrollIntoView(); }
}
