// Chooses, compares and charts the marks of the page. The URL keeps the choice. All numbers but ratios are text.
{
const {values, families, ignored, around, chips, forms, factors, near, nearest, ...packed} = window.benchbook;
const TICKS = [[1, "1 s"], [60, "1 min"], [3600, "1 h"], [86400, "1 day"], [864000, "10 days"], [8640000, "100 days"], [315576000, "10 years"]];
const DOLLARS = [0.01, 0.1, 1, 10, 100, 1000, 10000, 100000].map((at) => [at, `$${at.toLocaleString("en")}`]);
const FIRST = 24; // lines of the chart, as in page.css
const [CHIPS, OTHERS] = [["have", "consider", "third", "fourth"], ["train", "precision", "devices", "loop"]];
const LINES = {time: "Time", precision: "Precision", source: "Evidence", rent: "Rent for this task", energy: "Electricity", buy: "Price",
  memory: "Memory", pays: "Buying beats renting after", fits: "Largest batch, with Adam (predicted)", hour: "Rent of an hour"};
const [marks, pairs, works] = ["marks", "pairs", "works"].map((name) => packed[name].lines.map((line) =>
  Object.fromEntries(packed[name].columns.map((column, place) => [column, values[line[place]]]))));
const byId = (id) => document.getElementById(id);
const field = (name) => byId("choice").elements[name];
const made = (tag, text, more) => Object.assign(document.createElement(tag), {textContent: text}, more);
function row(head, ...cells) {
  const [line, cell] = [made("tr", ""), made("th", "", {scope: "row"})];
  cell.append(head);
  line.append(cell, ...cells);
  return line;
}
const linked = (mark) => mark.address ? made("a", mark.name, {href: mark.address}) : mark.name;
const product = (mark) => chips[mark.chip]?.[0];
// Boards and sizes of a product share a line; what was measured has its own.
const lineOf = (mark) => mark.source === "measured" || !product(mark) ? mark.name : `${product(mark)} ${mark.devices}`;
const byLine = (own) => field("devices").value === "boards" ? own : own.filter((mark) => mark === own.find((first) => lineOf(first) === lineOf(mark)));
const digits = (ratio) => ratio >= 10 ? Number(ratio.toPrecision(ratio >= 99.95 ? 3 : 2)).toLocaleString("en")
  : ratio.toPrecision(ratio >= 1 && ratio < 2 ? 3 : 2);

// The rules of chips.resolve: a chip's name by its words in any order, else all names that have each word as a whole.
const wordsOf = (text) => (text.toLowerCase().replace(/\((r|tm)\)/g, " ").match(/[a-z]+|\d+/g) ?? [])
  .filter((word) => !ignored.includes(word)).sort().join(" ");
const known = new Map(Object.entries(chips).flatMap(([chip, [, aliases]]) =>
  [chip, ...aliases.split("|")].map((name) => [wordsOf(name), chip])));
const without = (text) => around.reduce((texts, [words, other]) =>
  [...texts, texts.at(-1).replace(new RegExp(words, "g"), other).trim()], [text.toLowerCase().trim()]);
const chipOf = (text) => without(text).map((each) => known.get(wordsOf(each))).find(Boolean);
function meant(own, text) { // words are left out until the rest is a chip's name
  const texts = without(text), last = texts.findIndex((each) => known.has(wordsOf(each)));
  return texts.slice(0, last < 0 ? texts.length : last + 1).map((each) => named(own, each)).find((each) => each.length) ?? [];
}
function named(own, text) {
  const [words, chip] = [wordsOf(text), known.get(wordsOf(text))];
  const wanted = (text.toLowerCase().match(/[a-z0-9]+/g) ?? []).map((word) => new RegExp(
    `(?<![a-z0-9])${word.match(/[a-z]+|\d+/g).join("[^a-z0-9|]*")}(?!${/\d$/.test(word) ? "\\d" : "[a-z]"})`));
  const written = (mark) => `${mark.name}|${mark.chip}|${chips[mark.chip]?.[1] ?? ""}`.toLowerCase();
  const size = Number(text.match(/(\d+) ?gb/i)?.[1]); // typed, it is that of the chip
  const ofProduct = (mark) => chip && product(mark) === chips[chip][0] && (!size || mark.memory_gb === size);
  const hasWords = (mark) => wanted.every((word) => word.test(written(mark)));
  const rules = [(mark) => wordsOf(mark.name) === words, (mark) => chip && mark.chip === chip,
    (mark) => ofProduct(mark) && hasWords(mark), ofProduct, (mark) => !chip && hasWords(mark)]; // a chip's name is no other's
  const found = wanted.length ? rules.map((rule) => own.filter(rule)).find((each) => each.length) ?? [] : [];
  return found.filter((mark) => mark === found.find((first) => first.name === mark.name));
}
// The marks of the task and devices, in a precision or each name's fastest.
function chosen() {
  const [train, precision, devices] = OTHERS.map((name) => field(name).value);
  const own = marks.filter((mark) => mark.task === train && (!devices || mark.devices === 1));
  if (precision) return own.filter((mark) => mark.family === precision);
  const fastest = new Map([...own].sort((a, b) => b.seconds - a.seconds).map((mark) => [mark.name, mark]));
  return own.filter((mark) => mark === fastest.get(mark.name));
}
// How many times as fast `one` is as `other`: the rules of estimates.ratio; the narrowest evidence answers.
function ratio(one, other) {
  const [kinds, vendors] = [[one.source, other.source].sort(), [one, other].map((mark) => chips[mark.chip]?.[2] ?? mark.chip)];
  const within = (value, kind, basis) => {
    const factor = factors[kind][vendors[0] === vendors[1] ? "one vendor" : "two vendors"] ?? factors[kind]["the widest"];
    return {value, low: value / factor, high: value * factor, basis};
  };
  const width = (...ends) => Math.exp(Math.hypot(...ends.map(Math.log)));
  const value = other.seconds / one.seconds;
  const basis = `by the ${[...new Set(kinds)].join(" and ")} rates of each`;
  const found = [];
  if (kinds.includes("measured")) found.push({basis, value, low: value / width(one.most / one.seconds, other.seconds / other.least),
    high: value * width(one.seconds / one.least, other.most / other.seconds)});
  else if (!kinds.includes("predicted") || !(one.expected && other.expected)) found.push(within(value, "two figures", basis));
  if (one.devices === 1 && other.devices === 1 && !kinds.every((kind) => kind === "measured")) {
    found.push(...ofPairs(one, other).filter((pair) => ["", one.task].includes(pair.task)));
    if (one.expected && other.expected) found.push(within(other.expected / one.expected, "specifications", "by their specifications"));
  }
  const wide = (each) => Number((each.high / each.low).toPrecision(4));
  return found.reduce((best, each) => wide(each) < wide(best) ? each : best);
}
// The published pairs of two chips in the precision of both.
function ofPairs(one, other) {
  const names = [one, other].map(product);
  return pairs.filter((pair) => one.family === other.family && pair.family === one.family && names[0] !== names[1]
    && names.includes(pair.product) && names.includes(pair.over)).map((pair) => pair.over === names[0] ? pair : turned(pair));
}
const turned = (each) => ({...each, value: 1 / each.value, low: 1 / each.high, high: 1 / each.low});
function said(one, other, ratio) {
  if (ratio.value < 1) return said(other, one, turned(ratio));
  const form = ratio.low > 1 ? "faster" : ratio.value <= near ? "alike" : "open";
  const told = {one, other, basis: ratio.basis, low: digits(ratio.low), middle: digits(ratio.value), high: digits(ratio.high)};
  return forms[form].replace(/{(\w+)}/g, (_, name) => told[name]);
}
// The cheapest, the fastest and the reader's own of several, then each against the first.
function summary(own) {
  const least = (key) => own.filter((mark) => mark[key]).sort((a, b) => a[key] - b[key])[0];
  const short = (text) => text.replace(/ \(.*/, "");
  const [cheapest, fastest, mine] = [least("usd"), least("seconds"), own.find((mark) => mark.here)];
  return [cheapest && `Cheapest: ${cheapest.name}, ${short(cheapest.rent)} in ${short(cheapest.time)}.`,
    `Fastest: ${fastest.name}, ${short(fastest.time)}${fastest.usd ? ` for ${short(fastest.rent)}` : ""}.`,
    mine && `Yours: ${short(mine.time)}.`].filter(Boolean).join(" ");
}
// A chip without a time for this task may have pairs, or what was published nearest to it.
function showCard([first, ...others]) {
  const isMixed = new Set([first, ...others].filter((mark) => mark?.seconds).map((mark) => mark.family)).size > 1;
  const name = (mark) => `${mark.here ? "yours" : mark.name ?? mark.chip}${isMixed && mark.family ? ` in ${families[mark.family]}` : ""}`;
  const precisions = field("precision").value ? [field("precision").value] : Object.keys(families);
  const ofAnyWork = (other) => precisions.flatMap((family) =>
    ofPairs({...other, family}, {...first, family}).filter((pair) => !pair.task));
  const ratios = (other) => first.seconds && other.seconds ? [ratio(other, first)] : ofAnyWork(other);
  const against = (other) => ratios(other).map((each) => `${said(name(other), name(first), each)}.`);
  const [loop, rate] = [Number(field("loop").value.replaceAll(",", "")), (value) => Number(value.toPrecision(3)).toLocaleString("en")];
  const gained = (other) => loop > 0 ? ratios(other).slice(0, 1).map((each) => `Your own loop, if it gains as much: about ${
    rate(loop * each.value)} samples/s on ${name(other)} (${rate(loop * each.low)} to ${rate(loop * each.high)}).`) : [];
  const own = [first, ...others].filter((mark) => mark?.seconds);
  const near = [first, ...others].filter((mark) => mark && !mark.seconds && product(mark) in (nearest[field("train").value] ?? {}))
    .map((mark) => `${mark.chip}: nearest published ${values[nearest[field("train").value][product(mark)]]}.`);
  const texts = [...(own.length > 2 ? [summary(own)] : []), ...others.flatMap(against), ...others.flatMap(gained)];
  byId("verdict").replaceChildren(...texts.map((text) => made("p", text)), ...near.map((text) => made("p", text, {className: "note"})));
  const cell = (mark, key) => (key === "memory" ? mark.memory_gb && `${+mark.memory_gb.toPrecision(3)} GB`
    : key === "precision" ? families[mark.family] : mark[key]) || "unknown";
  byId("card").replaceChildren(row("Chip", ...own.map((mark) => made("th", mark.name, {scope: "col"}))),
    ...Object.entries(LINES).map(([key, title]) => row(title, ...own.map((mark) => made("td", cell(mark, key), {className: key})))));
  byId("side").hidden = !own.length;
  byId("sure").replaceChildren(...own.map((mark) => {
    const line = made("li", "");
    line.append(linked(mark), `: ${mark.source}, ${mark.basis}. Source: ${mark.sources}${mark.noted ? `. Price: ${mark.noted}` : ""}`);
    return line;
  }));
}
// The logarithmic places of values between two ends, from 0 to 1, and those of the ticks there.
function scale(values, ticks) {
  const logs = values.map(Math.log10);
  const [start, most] = [Math.min(...logs), Math.max(...logs) + 0.1];
  const least = Math.min(most - 1, start - 0.5, ...ticks.map(([at]) => Math.log10(at)).filter((at) => at < start).slice(-1));
  const place = (value) => (Math.log10(value) - least) / (most - least);
  return {place, ticks: ticks.map(([at, text]) => [place(at), text]).filter(([at]) => at >= 0 && at <= 1)};
}
const percent = (part) => `${100 * part}%`;
function drawn(tag, places, more = {}) { // places from 0 to 1
  const shape = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, part] of Object.entries(places)) shape.setAttribute(name, percent(part));
  for (const [name, value] of Object.entries(more)) name === "text" ? shape.textContent = value : shape.setAttribute(name, value);
  return shape;
}
// Dollars of the task over its time, and the edge: the chips that no other beats in both.
function showDollars(listed, own) {
  const priced = listed.filter((mark) => mark.usd).sort((a, b) => a.seconds - b.seconds || a.usd - b.usd);
  byId("dollars").hidden = priced.length < 2;
  if (priced.length < 2) return;
  const edge = priced.filter((mark, place) => priced.slice(0, place).every((faster) => faster.usd > mark.usd));
  const [hours, dollars] = [scale(priced.map((mark) => mark.seconds), TICKS), scale(priced.map((mark) => mark.usd), DOLLARS)];
  const at = (mark) => [hours.place(mark.seconds), 1 - dollars.place(mark.usd)];
  const told = (mark) => `${mark.name}: ${mark.rent}, ${mark.time}`;
  const dots = priced.map((mark) => {
    const dot = drawn("circle", {cx: at(mark)[0], cy: at(mark)[1]}, {r: own.includes(mark) ? 6 : 4, class: mark.source});
    dot.append(drawn("title", {}, {text: told(mark)}));
    return dot;
  });
  const names = [...new Set([...edge, ...own.filter((mark) => mark.usd)])].map((mark) => drawn("text", {x: at(mark)[0], y: at(mark)[1]},
    {dx: at(mark)[0] > 0.6 ? -8 : 8, dy: -6, "text-anchor": at(mark)[0] > 0.6 ? "end" : "start", text: mark.name.replace("NVIDIA ", "")}));
  byId("dots").setAttribute("aria-label", `Dollars over time. The best: ${edge.map(told).join("; ")}`);
  byId("dots").replaceChildren(...hours.ticks.flatMap(([x, text]) => [drawn("line", {x1: x, x2: x, y1: 0, y2: 1}), drawn("text", {x, y: 1}, {dy: 14, text})]),
    ...dollars.ticks.flatMap(([y, text]) => [drawn("line", {x1: 0, x2: 1, y1: 1 - y, y2: 1 - y}), drawn("text", {x: 0, y: 1 - y}, {dy: -3, text})]),
    ...edge.slice(1).map((mark, place) => drawn("line", {x1: at(edge[place])[0], y1: at(edge[place])[1], x2: at(mark)[0], y2: at(mark)[1]}, {class: "edge"})),
    ...dots, ...names);
}
function showChart(listed, own) {
  const ends = listed.flatMap((mark) => [mark.low ?? mark.seconds, mark.high ?? mark.seconds]);
  const {place: part, ticks: parts} = scale(ends, TICKS);
  const [place, ticks] = [(seconds) => percent(part(seconds)), parts.map(([at, text]) => [percent(at), text])];
  byId("more").hidden = listed.length <= FIRST;
  const axis = made("td", "", {className: "axis"});
  axis.append(...ticks.map(([left, text]) => made("b", text, {style: `left: ${left}`})));
  const line = (left) => `linear-gradient(to right, transparent calc(${left} - 1px), var(--color-background-border) 0 ${left}, transparent 0)`;
  byId("list").style.setProperty("--ticks", ticks.map(([left]) => line(left)).join(", "));
  byId("axis").replaceChildren(row("Time", axis));
  byId("list").replaceChildren(...listed.map((mark) => {
    const ends = mark.source === "predicted" ? [place(mark.low), place(mark.high)] : ["0%", place(mark.seconds)];
    const bar = made("td", "", {className: `bar ${mark.source}`});
    bar.append(made("i", "", {style: `left: ${ends[0]}; right: calc(100% - ${ends[1]})`}), made("span", mark.time),
      ...(mark.each?.split("|") ?? []).map((seconds) => made("b", "", {style: `left: ${place(Number(seconds))}`})));
    const line = row(linked(mark), bar);
    line.className = own.includes(mark) ? "chosen" : "";
    if (mark.here) line.firstChild.append(made("small", " your kind of machine"));
    return line;
  }));
}
// Each work that a publication trained on several of the chips, or all works of a chosen source.
function showWorks(own) {
  const [source, wanted] = [byId("source").value, own.map(product)];
  const groups = works.filter((work) => source ? work.article === source : wanted.includes(work.product))
    .reduce((found, work) => found.set(work.group, [...found.get(work.group) ?? [], work]), new Map());
  const several = [...groups.values()].filter((group) => group.length > 1);
  byId("works").replaceChildren(...several.map(([slowest, ...faster]) => {
    const said = (work) => `${work.product} ${work.value.toLocaleString("en")} ${work.unit}`;
    const times = faster.map((work) => `${said(work)} (${digits(work.speed / slowest.speed)} times)`);
    const line = row(`${slowest.work}, ${families[slowest.family]}`, made("td", [said(slowest), ...times].join("; ")));
    line.firstChild.append(made("small", ` ${slowest.article}`));
    return line;
  }));
  if (!several.length) byId("works").append(row("No publication trained one workload on two of these chips."));
}
// What there is of a name without a time: its other tasks and precisions, else chips that share one of its words.
function other(text) {
  const [chip, words] = [chipOf(text), text.toLowerCase().match(/[a-z]*\d+[a-z]*|[a-z]{2,}/g) ?? []];
  const own = chip ? marks.filter((mark) => product(mark) === chips[chip][0] && mark.devices === 1) : [];
  const titles = Object.fromEntries([...field("train").options].map((option) => [option.value, option.text]));
  const named = chip ? own.map((mark) => `${titles[mark.task]} in ${families[mark.family]}`)
    : Object.keys(chips).filter((each) => words.some((word) => each.toLowerCase().split(/[^a-z0-9]+/).includes(word)));
  const few = [...new Set(named)].slice(0, 6).join("; ");
  return few && (chip ? `; it has ${few}` : `; near it are ${few}`);
}
function update() {
  const train = field("train").value;
  byId("names").replaceChildren(...[...new Set(marks.filter((mark) => mark.task === train).map((mark) => mark.name))].map((name) => made("option", name)));
  for (const note of document.querySelectorAll("[data-task]")) note.hidden = note.dataset.task !== train;
  const every = chosen();
  const typed = CHIPS.filter((name) => field(name).value.trim()).map((name) => [name, byLine(meant(every, field(name).value))]);
  byId("none").replaceChildren(...typed.filter(([, found]) => found.length !== 1).map(([name, found]) => {
    const said = made("p", `“${field(name).value}” ${found.length ? "names several: " : `has no time for this task and precision${other(field(name).value)}.`}`);
    found.sort((one, other) => one.name.localeCompare(other.name, "en", {numeric: true}));
    said.append(...found.map((mark) => made("button", mark.name, {type: "button", onclick: () => { field(name).value = mark.name; update(); field(name).focus(); }})));
    return said;
  }));
  const asked = typed.map(([name, found]) => found.length === 1 ? found[0] : !found.length && {chip: chipOf(field(name).value)});
  const own = [...new Set(asked.filter((mark) => mark.chip || mark.name))];
  const mine = field("have").value.trim() ? [] : every.filter((mark) => mark.here).slice(0, 1);
  const timed = own.filter((mark) => mark.seconds), taken = timed.map(lineOf);
  const listed = [...new Set([...mine, ...timed, ...byLine(every).filter((mark) => !taken.includes(lineOf(mark)))])];
  showCard(own);
  showChart(listed, own);
  showDollars(listed, own);
  showWorks(own);
  const choice = [...CHIPS, ...OTHERS].map((name) => [name, field(name).value]);
  history.replaceState(null, "", `#${new URLSearchParams(choice.filter(([name, value]) => value || name === "devices"))}`);
}
function recall() {
  const choice = new URLSearchParams(location.hash.slice(1));
  for (const name of [...CHIPS, ...OTHERS].filter((each) => choice.has(each))) {
    const [own, value] = [field(name), choice.get(name)];
    const isOption = [...own.options ?? []].some((option) => option.value === value);
    if (isOption || own.maxLength > 0) own.value = value.slice(0, own.maxLength); // as typed
  }
  const mine = marks.find((mark) => mark.here && mark.task === field("train").value);
  if (!choice.has("have")) field("have").value = mine?.name ?? "";
  const usual = marks.find((mark) => mark.task === field("train").value && mark.name === "NVIDIA RTX 4090");
  if (!choice.has("have") && !choice.has("consider")) field("consider").value = usual?.name ?? "";
  document.querySelector("#choice details").open ||= Boolean(field("third").value || field("fourth").value || field("devices").value !== "1" || field("loop").value);
  update();
}

byId("source").append(...[...new Set(works.map((work) => work.article))].sort().map((name) => new Option(name)));
byId("choice").hidden = false;
recall();
for (const id of ["choice", "source"]) byId(id).addEventListener("input", update);
byId("choice").addEventListener("submit", (event) => event.preventDefault());
byId("more").addEventListener("click", () => {
  byId("more").textContent = byId("list").classList.toggle("all") ? `Show the first ${FIRST}` : "Show all";
});
addEventListener("hashchange", recall);
}
