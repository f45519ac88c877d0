// The table is the picture. This shows another quantity, filters, sorts and compares; the address keeps the choice.
{
const constants = JSON.parse(document.getElementById("constants").textContent);
const JOULES_PER_KWH = 3.6e6;
const form = document.getElementById("choice");
const table = document.getElementById("marks");
const more = document.getElementById("more");
const SHOWN_AT_FIRST = innerWidth < 800 ? 12 : 24;
const HOURS_PER_YEAR = 365 * 24;
const SOURCES = ["measured", "published", "predicted"];
const NUMBERS = ["seconds", "low", "high", "joules", "rent", "purchase", "memoryGb", "count", "counted"];
const rows = [...table.tBodies[0].rows].map(read);
const alphabet = new Intl.Collator("en", {numeric: true});
let everything = false;

function read(element) {
  const has = (name) => element.classList.contains(name);
  const row = {element, ...element.dataset, apart: has("apart"), here: has("here"), source: SOURCES.find(has)};
  for (const name of NUMBERS) row[name] = row[name] === undefined ? null : Number(row[name]);
  row.watts = row.joules === null ? null : row.joules / row.seconds;
  row.curve = row.curve && JSON.parse(row.curve);
  row.atFirst = {seconds: row.seconds, low: row.low, high: row.high};
  return row;
}

const field = (name) => form.elements[name];
const fields = [...form.elements].filter((element) => element.name);
function stated(name, otherwise) {
  const value = field(name) ? parseFloat(field(name).value) : NaN;
  return Number.isFinite(value) && value >= 0 ? value : otherwise;
}

// What a row takes of a quantity in a second: all bounds are those of the time. Null without a price or a sensor.
function perSecond(row, quantity) {
  const electricity = row.watts === null ? null : row.watts / JOULES_PER_KWH * stated("kwh", 0);
  const hours = stated("years", 3) * HOURS_PER_YEAR * stated("hours", 24) / 24;
  if (quantity === "time") return 1;
  if (quantity === "energy") return row.watts;
  if (quantity === "electricity") return electricity;
  if (quantity === "rented") return row.rent === null ? null : row.rent / 3600;
  return row.purchase === null ? null : row.purchase / hours / 3600 + (electricity ?? 0);
}
function costs(row, quantity) {
  const factor = perSecond(row, quantity);
  return factor === null || row.seconds === null ? null : row.seconds * factor;
}

// One's own network: between the operations at which rates were predicted, along straight lines of logarithms.
function interpolate(curve, name, operations) {
  const x = curve.operations.map(Math.log), y = curve[name].map(Math.log);
  const at = Math.min(Math.max(Math.log(operations), x[0]), x.at(-1));
  const place = Math.min(x.length - 2, x.findLastIndex((each) => each <= at));
  return Math.exp(y[place] + (at - x[place]) / (x[place + 1] - x[place]) * (y[place + 1] - y[place]));
}
function train() {
  const operations = stated("operations", 0) || constants.operations;
  const share = stated("images", constants.images) / constants.images;
  for (const row of rows.filter((each) => each.curve)) {
    const {0: least, length, [length - 1]: most} = row.curve.operations;  // beyond these nothing is predicted
    const inside = least <= operations && operations <= most;
    for (const name of ["seconds", "low", "high"])
      row[name] = inside ? interpolate(row.curve, name, operations) * share : null;
  }
  for (const row of rows.filter((each) => each.counted)) {
    for (const name of ["seconds", "low", "high"]) row[name] = row.atFirst[name] && row.atFirst[name] * share;
    row.apart = Math.abs(Math.log(row.counted / operations)) >= 0.1;
    row.element.classList.toggle("apart", row.apart);
  }
}

// "4090, Apple M1" finds either.
function matches(row) {
  const text = `${row.name} ${row.source} ${row.kind}`.toLowerCase();
  const wanted = field("find").value.toLowerCase().split(/[,;]/).filter((each) => each.trim());
  return !wanted.length || wanted.some((each) => each.trim().split(/\s+/).every((word) => text.includes(word)));
}
function passes(row) {
  const atMost = (name) => !stated(name, 0) || row[name] !== null && row[name] <= stated(name, 0);
  return row.seconds !== null && matches(row)
    && (!field("kind").value || row.kind === field("kind").value)
    && (!field("family").value || row.family === field("family").value)
    && field(row.source).checked
    && row.count <= (stated("devices", 0) || Infinity)
    && (!stated("memory", 0) || row.memoryGb >= stated("memory", 0))
    && atMost("rent") && atMost("purchase");
}

// The same steps as without a script: the first tick lies at the axis's start, the last at its end.
function steps(values, candidates) {
  const smallest = Math.min(...values), largest = Math.max(...values);
  const first = candidates.findLast((each) => each <= smallest) ?? candidates[0];
  const last = candidates.find((each) => each >= largest && each > first) ?? candidates.at(-1);
  const inside = candidates.filter((each) => first <= each && each <= last);
  const apart = Math.ceil((inside.length - 1) / constants.most);
  return apart > 1 ? [...inside.slice(0, -1).filter((_, place) => place % apart === 0), last] : inside;
}
function candidates(quantity) {
  if (quantity === "time") return constants.time;
  return quantity === "energy" ? constants.decades.map((each) => each * 3600) : constants.decades;
}

const made = (name, properties) => Object.assign(document.createElement(name), properties);
function draw(quantity, shown, base) {
  const at = (row) => [row.seconds, row.low ?? row.seconds, row.high ?? row.seconds]
    .map((each) => each * perSecond(row, quantity));
  const ticks = shown.length ? steps(shown.flatMap(at), candidates(quantity)) : [1, 10];
  const share = (each) => 100 * Math.log(each / ticks[0]) / Math.log(ticks.at(-1) / ticks[0]);
  table.dataset.show = quantity === "electricity" ? "bought" : quantity;
  table.querySelector("th.bought").textContent = quantity === "electricity" ? "Electricity" : "Bought";
  const labels = ticks.map((each) => made("i", {textContent: say[quantity](each), style: `left:${share(each)}%`}));
  table.querySelector(".ticks").replaceChildren(...labels);
  for (const row of shown) {
    const [middle, low, high] = at(row).map(share);
    const line = row.element.querySelector(".track b");
    if (line) Object.assign(line.style, {left: `${low}%`, width: `${high - low}%`});
    row.element.querySelector(".track a").style.left = `${middle}%`;
    write(row, quantity, base);
  }
}
function write(row, quantity, base) {
  for (const name of ["time", "rented", "bought", "energy"]) {
    const kind = name === "bought" && quantity === "electricity" ? quantity : name;
    const cost = costs(row, kind);
    row.element.querySelector(`td.${name}`).textContent = cost === null ? "" : say[kind](cost);
  }
  if (!base || base === row) return;
  const ratio = costs(row, quantity) / costs(base, quantity);
  const [less, greater] = quantity === "time" ? ["faster", "slower"] : ["less", "more"];
  const textContent = ratio < 1 ? `${number(1 / ratio)} x ${less}` : `${number(ratio)} x ${greater}`;
  row.element.querySelector(`td.${table.dataset.show}`).append(made("small", {textContent}));
}

// Numbers as the page has them: two digits, three from 100 on.
const formats = [2, 3].map((digits) =>
  new Intl.NumberFormat("en", {minimumSignificantDigits: digits, maximumSignificantDigits: digits}));
function number(value, isPrecise = value >= 100) {
  const large = constants.large.find(([size]) => value >= 0.9995 * size);
  if (large) return `${number(value / large[0])} ${large[1]}`;
  return value === 0 ? "0" : formats[Number(isPrecise)].format(value);
}
function duration(seconds) {
  const [unit, length] = constants.lengths.find(([, , end]) => end === null || seconds < end);
  return `${number(seconds / length)} ${unit}`;
}
function energy(joules) {
  const [size, unit] = constants.energies.find(([least]) => joules / 3600 >= least);
  return `${number(joules / 3600 / (size || 1e-3))} ${unit}`;
}
const dollars = (value) => `$${number(value)}`;
const say = {time: duration, rented: dollars, bought: dollars, electricity: dollars, energy};

// The sentences of the page, of the rows that are compared; their words are in constants, with names of numbers.
const isGuess = (row) => row.source === "predicted";
const certain = (rows) => rows.some((row) => !isGuess(row)) ? rows.filter((row) => !isGuess(row)) : rows;
const fill = (name, numbers) =>
  Object.entries(numbers ?? {}).reduce((text, [key, value]) => text.replaceAll(`{${key}}`, () => value), constants.sentences[name]);
const called = (row) => row.here ? `this machine${row.standIn ? ` (${row.standIn})` : ""}` : row.name;
const least = (rows, measure) => rows.reduce((best, row) => best && measure(best) <= measure(row) ? best : row, null);

function sentences(rows, base) {
  const priced = (quantity) => certain(rows.filter((row) => costs(row, quantity) !== null));
  const cheapest = (quantity) => least(priced(quantity), (row) => costs(row, quantity));
  const renting = cheapest("rented"), frugal = cheapest("energy");
  return [
    fastest(rows, base),
    renting ? fill(isGuess(renting) ? "cheapest_predicted" : "cheapest", {
      name: renting.name, cost: dollars(costs(renting, "rented")), rent: dollars(renting.rent), note: renting.rentNote,
    }) : fill("no_rent"),
    frugal ? fill("least_energy", {
      name: frugal.name, energy: energy(costs(frugal, "energy")), count: priced("energy").length,
      note: frugal.energyNote.split(";")[0],
    }) : fill("no_energy"),
    buyOrRent(base, renting, cheapest("bought")),
  ];
}
function fastest(rows, base) {
  if (!rows.length) return fill("no_machine");
  const first = least(certain(rows), (row) => row.seconds), guess = least(rows, (row) => row.seconds);
  const ratio = base && base.seconds / first.seconds;
  return [
    fill("fastest", {name: first.name, time: duration(first.seconds), basis: first.basis}),
    base && base !== first && fill(isGuess(base) ? "slower_predicted" : "slower", {
      name: called(base), time: duration(base.seconds), ratio: number(ratio, 1 <= ratio && ratio < 2 || ratio >= 100),
    }),
    guess.seconds < first.seconds && guess !== base
      && fill("predicted", {name: guess.name, time: duration(guess.seconds)}),
  ].filter(Boolean).join("") + ".";
}
function buyOrRent(base, renting, cheapest) {
  if (!renting) return fill("no_comparison");
  if (base && base.purchase === null) {
    const cost = dollars(renting.rent * renting.seconds / base.seconds);
    return fill("worth", {name: called(base), cost, renting: renting.name});
  }
  const owned = base ?? cheapest;
  if (!owned) return fill("no_purchase");
  const hourly = (costs(owned, "electricity") ?? 0) / owned.seconds * 3600;
  const saved = renting.rent * renting.seconds / owned.seconds - hourly;
  const bought = {name: owned.name, price: dollars(owned.purchase), note: owned.purchaseNote.split(",")[0]};
  const numbers = {...bought, renting: renting.name, hours: number(owned.purchase / saved)};
  return fill(saved > 0 ? "pays" : "never", numbers) + (owned.joules === null ? fill("uncounted") : "") + ".";
}

// The address keeps what is not as at first; links to other tasks take it along, but for the machine compared with.
function remember() {
  const choice = new URLSearchParams();
  for (const element of fields) {
    if (element.type === "checkbox" && !element.checked) choice.set(element.name, "no");
    if (element.type !== "checkbox" && element.value !== element.dataset.first) choice.set(element.name, element.value);
  }
  const text = choice.toString();
  const page = location.pathname + location.search;
  if (text || location.hash.includes("=")) history.replaceState(null, "", text ? `#${text}` : page);
  choice.delete("with");
  for (const link of document.querySelectorAll(".tasks a"))
    link.setAttribute("href", [link.getAttribute("href").split("#")[0], choice.toString()].filter(Boolean).join("#"));
}
function recall() {
  const choice = new URLSearchParams(location.hash.includes("=") ? location.hash.slice(1) : "");
  for (const element of fields) {
    const kept = choice.get(element.name);
    if (element.type === "checkbox") element.checked = kept !== "no";
    else element.value = kept ?? element.dataset.first;
    if (element.tagName === "SELECT" && element.selectedIndex < 0) element.value = element.dataset.first;
  }
  const folded = form.querySelector("details");
  folded.open ||= fields.some((element) => folded.contains(element) && choice.has(element.name));
}

function update() {
  const quantity = field("show").value;
  train();
  const chosen = rows.find((row) => row.element.id === field("with").value);
  // A network that was measured is compared with what is predicted of its own operations alone.
  const base = chosen?.counted && chosen.apart ? rows.find((row) => row.here && !row.apart) : chosen;
  const passing = rows.filter(passes);
  const byName = (a, b) => alphabet.compare(a.name, b.name);
  const byCost = (a, b) => costs(a, quantity) - costs(b, quantity);
  const drawn = rows
    .filter((row) => (passing.includes(row) || row === base || row.here) && costs(row, quantity) !== null)
    .sort(field("sort").value === "name" ? byName : byCost);
  const likely = [...drawn.filter((row) => !isGuess(row)), ...drawn.filter(isGuess)];
  const first = new Set(everything ? drawn : likely.slice(0, SHOWN_AT_FIRST));
  const shown = drawn.filter((row) => first.has(row) || row === base || row.here);
  for (const row of rows) {
    row.element.hidden = !shown.includes(row);
    row.element.classList.toggle("base", row === base);
  }
  table.tBodies[0].append(...shown.map((row) => row.element));
  draw(quantity, shown, base && costs(base, quantity) !== null ? base : null);
  const compared = rows.filter((row) => !row.apart && (passing.includes(row) || row === base));
  const said = sentences(compared, base);
  document.querySelectorAll("#sentences dd").forEach((element, place) => { element.textContent = said[place]; });
  more.hidden = drawn.length === shown.length && !everything;
  more.textContent = everything ? `Show the first ${SHOWN_AT_FIRST}` : `Show all ${drawn.length}`;
  document.getElementById("count").textContent = shown.length
    ? `${shown.length} of ${rows.length} shown.` : "No machine of this task passes; other tasks have others.";
  remember();
}

function begin() {
  const label = (row) => row.family === "half" ? `${row.name}, 16 bits` : row.name;
  const options = rows.map((row) => new Option(label(row), row.element.id));
  field("with").append(...options.sort((a, b) => alphabet.compare(a.text, b.text)));
  for (const element of fields) element.dataset.first = element.defaultValue ?? "";
  field("show").dataset.first = "time";
  train();
  field("with").dataset.first = rows.find((row) => row.here && !row.apart)?.element.id ?? "";
  form.hidden = false;
  document.querySelector(".tasks [aria-current]").scrollIntoView({inline: "center", block: "nearest"});
  recall();
  update();
  const linked = document.getElementById(location.hash.slice(1));  // from a machine's page to its mark
  if (!linked?.matches("#marks tr")) return;
  linked.hidden = false;
  linked.querySelector("details").open = true;
  linked.scrollIntoView();
}

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
addEventListener("hashchange", () => {
  if (!location.hash.includes("=")) return;
  recall();
  update();
});
begin();
}
