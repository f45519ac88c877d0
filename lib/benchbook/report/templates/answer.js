// Compares, filters, sorts and draws the rows of the table. The URL keeps the choice. All sentences are in the page.
{
const constants = JSON.parse(document.getElementById("constants").textContent);
const form = document.getElementById("choice");
const table = document.getElementById("marks");
const card = document.getElementById("card");
const more = document.getElementById("more");
const SHOWN_AT_FIRST = innerWidth < 800 ? 12 : 24;
const TICK_WIDTH = 56;  // pixels between labels of the axis
const SVG = "http://www.w3.org/2000/svg";
const SHAPES = {
  measured: ["circle", {r: 4.6}], published: ["rect", {x: -4, y: -4, width: 8, height: 8}],
  predicted: ["path", {d: "M0-5.2 5.2 0 0 5.2-5.2 0Z"}],
};
const EXAMPLE = "NVIDIA RTX 4090", NETWORK = "ResNet-50";  // the first choice on the page
const RINGED = "fp32", UNKNOWN = "unknown";  // families of precisions: marks that are rings, marks that fit any choice
const rows = constants.rows.map((row) => {
  const element = document.getElementById(row.id);
  const marks = row.marks.map((mark) => ({...mark, atFirst: {...mark}}));
  return {difference: "", standIn: "", ...row, marks, element, search: `${row.name} ${row.kind}`.toLowerCase()};
});
const fields = [...form.elements].filter((element) => element.name);
const field = (name) => form.elements[name];
let showsAll = false;

function stated(name, otherwise) {
  const value = field(name) ? parseFloat(field(name).value) : NaN;
  return Number.isFinite(value) && value >= 0 ? value : otherwise;
}

// Numbers are written as in Python's wording: two digits, three from 100 on; money below $10 to a cent.
const formats = [2, 3].map((digits) =>
  new Intl.NumberFormat("en", {minimumSignificantDigits: digits, maximumSignificantDigits: digits}));
const cents = new Intl.NumberFormat("en", {minimumFractionDigits: 2, maximumFractionDigits: 2});
function number(value, isPrecise = value >= 100) {
  const large = constants.large.find(([size]) => value >= 0.9995 * size);
  if (large) return `${number(value / large[0])} ${large[1]}`;
  return value === 0 ? "0" : formats[Number(isPrecise)].format(value);
}
function duration(seconds) {
  const [unit, length] = constants.lengths.find(([, , end]) => end === null || seconds < end);
  return `${number(seconds / length)} ${unit}`;
}
function dollars(value) {
  if (value > 0 && value < 0.005) return "under $0.01";
  return `$${value < 10 ? cents.format(value) : number(value)}`;
}

// The fastest mark of a row in the chosen precision and sources.
const isPredicted = (mark) => mark.source === "predicted", isCertain = (mark) => !isPredicted(mark);
function choose(row, family, isWanted = () => true) {
  const timed = row.marks.filter((mark) => mark.seconds !== null && field(mark.source).checked && isWanted(mark));
  const own = family ? timed.filter((mark) => mark.family === family || mark.family === UNKNOWN) : timed;
  return own.reduce((best, mark) => best && best.seconds <= mark.seconds ? best : mark, null);
}
const rentOf = (row, mark) => row.rent === undefined ? null : row.rent * mark.seconds / 3600;
const electricityOf = (mark) => mark.kwh === undefined ? null : mark.kwh * stated("kwh", 0);
const COSTS = {time: (row, mark) => mark.seconds, price: (row) => row.price ?? null, rent: rentOf,
  electricity: (row, mark) => electricityOf(mark)};
const least = (pairs, measure) => pairs.reduce((best, pair) => best && measure(best) <= measure(pair) ? best : pair, null);

// The user's network: interpolate linearly, in logarithms, between the operations at which times were predicted.
function interpolate(curve, operations) {
  const x = constants.operations.map(Math.log), y = curve.map(Math.log);
  const at = Math.log(operations);
  const place = Math.min(x.length - 2, x.findLastIndex((each) => each <= at));
  return Math.exp(y[place] + (at - x[place]) / (x[place + 1] - x[place]) * (y[place + 1] - y[place]));
}
function train() {
  if (!constants.operations.length) return;
  const operations = 1e9 * stated("operations", 0);
  const share = stated("images", constants.images) / constants.images;
  const inside = constants.operations[0] <= operations && operations <= constants.operations.at(-1);
  for (const row of rows) {
    for (const mark of row.marks) {
      for (const name of ["seconds", "low", "high"]) {
        if (mark.curve) mark[name] = inside ? interpolate(mark.curve[name], operations) * share : null;
        else if (mark.atFirst[name]) mark[name] = mark.atFirst[name] * share;
      }
    }
    if (!row.counted) continue;  // a measured network is compared only at its own number of operations
    const isDifferent = Math.abs(Math.log(row.counted / operations)) >= constants.alike;
    row.element.classList.toggle("different", isDifferent);
    row.difference = isDifferent ? say("operations", {operations: number(row.counted)}) : "";
  }
}

// "4090, Apple M1" finds either.
function matches(row, text) {
  const wanted = text.toLowerCase().split(/[,;]/).filter((each) => each.trim());
  return !wanted.length || wanted.some((each) => each.trim().split(/\s+/).every((word) => row.search.includes(word)));
}
// The row with this name, else the row with the shortest name that has all words; same work and fewest devices first.
function find(text) {
  if (!text.trim()) return null;
  const exact = rows.find((row) => row.name.toLowerCase() === text.trim().toLowerCase());
  const found = rows.filter((row) => matches(row, text));
  return exact ?? least(found, (row) => 1e6 * Boolean(row.difference) + 1000 * row.count + row.name.length);
}
const namesakes = (row, text) => row.name.toLowerCase() === text.trim().toLowerCase() ? []
  : rows.filter((other) => other !== row && other.count === row.count && !other.difference && matches(other, text));
function passes(row) {
  return matches(row, field("find").value)
    && (!field("kind").value || row.kind === field("kind").value)
    && (!field("devices").value || row.count === Number(field("devices").value) || row.here);
}

// The first tick is the start of the axis, the last tick is its end.
function ticksOf(values) {
  const smallest = Math.min(...values), largest = Math.max(...values);
  const first = constants.time.findLast((each) => each <= smallest) ?? constants.time[0];
  const last = constants.time.find((each) => each >= largest && each > first) ?? constants.time.at(-1);
  const inside = constants.time.filter((each) => first <= each && each <= last);
  const step = Math.ceil((inside.length - 1) / constants.most);
  return step > 1 ? [...inside.slice(0, -1).filter((_, place) => place % step === 0), last] : inside;
}
const made = (name, properties, ...children) => {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children);
  return element;
};
function shape({source, family}) {
  const svg = document.createElementNS(SVG, "svg"), [name, attributes] = SHAPES[source];
  const inner = svg.appendChild(document.createElementNS(SVG, name));
  for (const [key, value] of Object.entries(attributes)) inner.setAttribute(key, value);
  svg.setAttribute("viewBox", "-6 -6 12 12");
  svg.setAttribute("class", `shape ${source}${family === RINGED ? " ring" : ""}`);
  svg.setAttribute("aria-hidden", "true");
  return svg;
}
function draw(shown) {
  const timed = (row) => row.marks.filter((mark) => mark.seconds !== null && field(mark.source).checked);
  const values = shown.flatMap((row) => timed(row).flatMap((mark) => [mark.seconds, mark.low, mark.high])).filter(Boolean);
  const ticks = values.length ? ticksOf(values) : [1, 10];
  const share = (each) => 100 * Math.log(each / ticks[0]) / Math.log(ticks.at(-1) / ticks[0]);
  const head = table.querySelector(".ticks");
  const room = 100 * TICK_WIDTH / (head.clientWidth || innerWidth);
  let last = -room;
  const labelled = ticks.filter((each) => share(each) - last >= room && ((last = share(each)), true));
  head.replaceChildren(...labelled.map((each) => made("i", {textContent: duration(each).replace(".0 ", " "), style: `left:${share(each)}%`})));
  for (const row of shown) {
    const track = made("span", {className: timed(row).length > 1 ? "track several" : "track"});
    for (const mark of timed(row)) {
      const look = mark.family === RINGED ? " below" : "";
      const [at, low, high] = [mark.seconds, mark.low ?? mark.seconds, mark.high ?? mark.seconds].map(share);
      if (high > low) track.append(made("b", {className: mark.source + look, style: `left:${low}%;width:${high - low}%`}));
      const family = constants.families[mark.family] ?? "";
      const title = `${row.name}${family && `, ${family}`}: ${duration(mark.seconds)}; ${mark.basis}`;
      track.append(made("a", {className: look.trim(), href: `${row.page}#${mark.id}`, tabIndex: -1, title, ariaLabel: title, style: `left:${at}%`}, shape(mark)));
    }
    row.element.querySelector(".drawn").replaceChildren(track);
  }
}
function write(row, mark) {
  const cell = (name) => row.element.querySelector(`td.${name}`);
  const rent = rentOf(row, mark), electricity = electricityOf(mark);
  const notes = [constants.epochs > 1 && `${duration(mark.seconds / constants.epochs)} an epoch`, constants.families[mark.family]];
  if (row.marks.some(({source}) => source !== mark.source)) notes.push(mark.source);
  cell("time").replaceChildren(duration(mark.seconds), " ", made("small", {textContent: notes.filter(Boolean).join(", ")}));
  cell("price").textContent = row.price === undefined ? "" : dollars(row.price);
  cell("rent").textContent = rent === null ? "" : dollars(rent) + (row.market ? "*" : "");
  cell("electricity").textContent = electricity === null ? "" : (mark.estimated ? "≈ " : "") + dollars(electricity);
}

// Fill the numbers of a sentence in the page; without numbers the sentence's alternative is shown.
function say(name, numbers) {
  const [words, otherwise] = document.querySelector(`[data-say=${name}]`).children;
  words.hidden = !numbers;
  otherwise.hidden = Boolean(numbers);
  for (const place of numbers ? words.querySelectorAll("[data-of]") : []) place.textContent = numbers[place.dataset.of];
  return (numbers ? words : otherwise).textContent;
}
const called = (row) => row.here ? `this machine${row.standIn ? ` (${row.standIn})` : ""}` : row.name;
function summarise(rows, family) {
  const pairs = (isWanted) => rows.map((row) => [row, choose(row, family, isWanted)]).filter(([, mark]) => mark);
  const certain = pairs(isCertain), guesses = pairs(isPredicted);
  const seconds = ([, mark]) => mark.seconds, rent = ([row, mark]) => rentOf(row, mark);
  const first = least(certain, seconds), guess = least(guesses, seconds);
  say("fastest", first && {name: called(first[0]), time: duration(first[1].seconds), basis: first[1].basis});
  say("guess", guess && {
    name: guess[0].name, time: duration(guess[1].seconds), low: duration(guess[1].low), high: duration(guess[1].high),
  });
  const offered = (some) => some.filter((pair) => rent(pair) !== null && !pair[0].market);
  const known = least(offered(certain), rent), likely = least(offered(guesses), rent);
  const sayRent = (name, pair) => say(name, pair && {
    name: called(pair[0]), cost: dollars(rent(pair)), rent: dollars(pair[0].rent), note: pair[0].rentNote,
    source: pair[1].source,
  });
  sayRent("cheapest", known ?? likely);
  sayRent("cheaper", known && likely && rent(likely) < rent(known) ? likely : null);
  const metered = certain.filter(([, mark]) => mark.kwh !== undefined && !mark.estimated);
  const frugal = least(metered, ([, mark]) => mark.kwh);
  say("frugal", frugal && {
    name: called(frugal[0]), energy: `${number(frugal[1].kwh)} kWh`, count: metered.length,
  });
}

// The card compares what the user has with what the user considers.
function fill(column, row, mark) {
  const set = (line, text) => { card.querySelector(`[data-line=${line}] .${column}`).replaceChildren(...text); };
  const lines = ["time", "fits", "price", "rent", "electricity", "pays", "sure"];
  card.querySelectorAll(`.${column}`).forEach((cell) => { cell.hidden = !row; });
  if (!row) return;
  const head = card.querySelector(`th.${column}`);
  const note = (text) => made("small", {textContent: text});
  const others = namesakes(row, field(column).value).map(({name}) => name).join(", ");
  head.replaceChildren(
    made("a", {href: `${row.page}#${row.id}`, textContent: row.here ? called(row) : row.name}), " ",
    note(others && say("namesakes", {names: others})));
  if (row.difference || !mark) {
    for (const line of lines) set(line, [""]);
    set("time", [row.difference ? say("other_work", {difference: row.difference}) : say("no_family", {})]);
    return;
  }
  const unknown = [say("unknown", {})], rent = rentOf(row, mark), electricity = electricityOf(mark);
  const each = constants.epochs > 1 ? `${duration(mark.seconds / constants.epochs)} an epoch, ` : "";
  set("time", [made("strong", {textContent: duration(mark.seconds)}), note(each + (constants.families[mark.family] ?? ""))]);
  set("fits", mark.fits ? [mark.fits] : unknown);
  set("price", row.price === undefined ? unknown : [dollars(row.price), note(row.priceNote)]);
  set("rent", rent === null ? unknown : [dollars(rent), note(`${dollars(row.rent)} an hour: ${row.rentNote}`)]);
  set("electricity", electricity === null ? unknown : [(mark.estimated ? "≈ " : "") + dollars(electricity)]);
  const hourly = electricity === null ? 0 : electricity / mark.seconds * 3600;
  const hours = row.price / (row.rent - hourly);
  const counted = electricity === null ? say("uncounted", {}) : "";
  const pays = hours > 0 ? say("pays", {hours: number(hours)}) + counted : say("never", {}) + counted;
  set("pays", [row.price === undefined || row.rent === undefined ? say("pays", null) : pays]);
  set("sure", [mark.basis]);
}
function compare() {
  const family = field("precision").value;
  const [have, consider] = ["have", "consider"].map((name) => find(field(name).value));
  const both = have && consider ? Object.keys(constants.families).filter((each) => choose(have, each) && choose(consider, each)) : [];
  const pairs = both.map((each) => [choose(have, each), choose(consider, each)]);
  const fastest = [have, consider].map((row) => row && choose(row, family));
  const [own, theirs] = family || !both.length ? fastest : least(pairs, (pair) => pair[1].seconds);
  card.hidden = !have && !consider;
  fill("have", have, own);
  fill("consider", consider, theirs);
  const compared = own && theirs && !have.difference && !consider.difference && have !== consider;
  const ratio = compared ? own.seconds / theirs.seconds : null;
  const [fast, slow] = ratio >= 1 ? [consider, have] : [have, consider];
  const times = Math.max(ratio, 1 / ratio);
  say("ratio", compared && {name: called(fast), other: called(slow), ratio: number(times, times < 2 || times >= 100)});
  const precision = (mark) => constants.families[mark.family] ?? mark.family;
  const faster = compared && [own, theirs].findIndex((mark, place) => fastest[place].seconds < mark.seconds);
  say("alike", compared && own.family === theirs.family && faster >= 0 && {
    name: called([have, consider][faster]), time: duration(fastest[faster].seconds),
    family: precision(own), fastest: precision(fastest[faster]),
  });
  say("precisions", compared && own.family !== theirs.family && {theirs: precision(theirs), own: precision(own)});
  const rent = compared ? rentOf(consider, theirs) : null;
  say("worth", rent !== null && {other: called(have), name: called(consider), cost: dollars(rent / own.seconds * 3600)});
  missing(["consider", "have", "find"].map((name) => field(name).value).find((text) => text.trim() && !rows.some((row) => matches(row, text))));
}
function missing(text) {
  const none = document.getElementById("none");
  none.hidden = !text;
  if (!text) return;
  const names = Object.keys(constants.elsewhere).filter((name) => matches({search: name.toLowerCase()}, text));
  const tasks = [...new Set(names.flatMap((name) => constants.elsewhere[name]))].map((place) => constants.tasks[place]);
  none.querySelector("[data-of=text]").textContent = text;
  none.lastElementChild.hidden = !tasks.length;
  none.querySelector("[data-of=others]").replaceChildren(...tasks.map(([short, address], place) =>
    made("a", {href: `${address}#consider=${encodeURIComponent(text)}`, textContent: `${place ? "; " : ""}${short}`})));
}

// The URL keeps every choice that differs from the first one; the page of another task gets the same choices.
function remember() {
  const choice = new URLSearchParams();
  for (const element of fields) {
    if (element.name === "train") continue;
    if (element.type === "checkbox" && !element.checked) choice.set(element.name, "no");
    if (element.type !== "checkbox" && element.value !== element.dataset.first) choice.set(element.name, element.value);
  }
  const text = choice.toString();
  const page = location.pathname + location.search;
  if (text || location.hash.includes("=")) history.replaceState(null, "", text ? `#${text}` : page);
}
function recall() {
  const choice = new URLSearchParams(location.hash.includes("=") ? location.hash.slice(1) : "");
  for (const element of fields.filter((each) => each.name !== "train")) {
    const value = choice.get(element.name);
    if (element.type === "checkbox") element.checked = value !== "no";
    else element.value = value ?? element.dataset.first;
    if (element.tagName === "SELECT" && element.selectedIndex < 0) element.value = element.dataset.first;
  }
}

function update() {
  train();
  const family = field("precision").value;
  const cost = ([row, mark]) => COSTS[field("sort").value](row, mark);
  const pairs = rows.filter(passes).map((row) => [row, choose(row, family)]).filter(([, mark]) => mark);
  const known = pairs.filter((pair) => cost(pair) !== null);
  const drawn = known.sort((a, b) => cost(a) - cost(b) || a[1].seconds - b[1].seconds);
  const isKnown = ([row]) => choose(row, family, isCertain);
  const ranked = [...drawn.filter(isKnown), ...drawn.filter((pair) => !isKnown(pair))];
  const first = new Set(showsAll ? drawn : ranked.slice(0, SHOWN_AT_FIRST));
  const shown = drawn.filter((pair) => first.has(pair) || pair[0].here);
  const elements = new Set(shown.map(([row]) => row.element));
  for (const row of rows) row.element.hidden = !elements.has(row.element);
  for (const [row, mark] of shown) write(row, mark);
  table.tBodies[0].append(...shown.map(([row]) => row.element));
  draw(shown.map(([row]) => row));
  summarise(pairs.map(([row]) => row).filter((row) => !row.difference), family);
  compare();
  more.hidden = drawn.length === shown.length && !showsAll;
  more.textContent = showsAll ? `Show the first ${SHOWN_AT_FIRST}` : `Show all ${drawn.length}`;
  document.getElementById("count").textContent = `${shown.length} of ${drawn.length} shown.`;
  remember();
}

document.getElementById("names").append(
  ...rows.map((row) => row.name).sort(new Intl.Collator("en", {numeric: true}).compare).map((value) => made("option", {value})));
for (const element of fields) element.dataset.first = element.value;
const mine = rows.find((row) => row.here && !row.difference);
field("have").dataset.first = mine?.name ?? "";
field("consider").dataset.first = (rows.find((row) => row.name === EXAMPLE && row !== mine) ?? rows[0])?.name ?? "";
field("devices").dataset.first = field("devices").options[0].value;
if (field("preset")) {
  field("preset").dataset.first = [...field("preset").options].find(({text}) => text === NETWORK).value;
  field("operations").dataset.first = field("preset").dataset.first;
}
card.querySelector("[data-line=fits]").hidden = !rows.some((row) => row.marks.some((mark) => mark.fits));
form.hidden = false;
table.classList.add("scripted");
recall();
update();

form.addEventListener("input", (event) => {
  if (event.target.name === "train") {
    location.href = event.target.value + location.hash;
    return;
  }
  if (event.target.name === "preset" && event.target.value) field("operations").value = event.target.value;
  if (event.target.name === "operations") field("preset").value = "";
  update();
});
form.addEventListener("submit", (event) => event.preventDefault());
form.addEventListener("reset", (event) => {
  event.preventDefault();
  history.replaceState(null, "", location.pathname + location.search);
  recall();
  update();
});
more.addEventListener("click", () => { showsAll = !showsAll; update(); });
addEventListener("hashchange", () => {
  recall();
  update();
});
}
