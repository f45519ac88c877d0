// Numbers and sentences as a reader says them; the page's first ones were made in the same words without a script.
const LENGTHS = [["s", 1, 120], ["min", 60, 7200], ["h", 3600, 172800], ["days", 86400, Infinity]];
const LARGE = [[1e12, "trillion"], [1e9, "billion"], [1e6, "million"]];
const ENERGIES = [[1e6, "MWh"], [1e3, "kWh"], [1, "Wh"], [0, "mWh"]];
const JOULES_PER_KWH = 3.6e6;

// Two digits, three from 100 on.
function number(value) {
  const large = LARGE.find(([size]) => value >= 0.9995 * size);
  if (large) return `${number(value / large[0])} ${large[1]}`;
  if (value === 0) return "0";
  const digits = value >= 100 ? 3 : 2;
  const rounded = Number(value.toPrecision(digits));
  const places = Math.max(0, digits - 1 - Math.floor(Math.log10(rounded)));
  const [whole, ...rest] = rounded.toFixed(places).split(".");
  return [whole.replace(/\B(?=(\d{3})+$)/g, ","), ...rest].join(".");
}

function duration(seconds) {
  if (seconds < 0.1) return `${number(seconds * 1e3)} ms`;
  const [unit, length] = LENGTHS.find(([, , longest]) => seconds < longest);
  return `${number(seconds / length)} ${unit}`;
}

function energy(joules) {
  const hours = joules / 3600;
  const [size, unit] = ENERGIES.find(([least]) => hours >= least);
  return `${number(hours / (size || 1e-3))} ${unit}`;
}

const dollars = (value) => `$${number(value)}`;
const say = {time: duration, rented: dollars, bought: dollars, electricity: dollars, energy};

// Where something was measured or published, what is predicted is the best of nothing.
const isGuess = (row) => row.source === "predicted";
const surest = (rows) => rows.some((row) => !isGuess(row)) ? rows.filter((row) => !isGuess(row)) : rows;

const least = (rows, measure) =>
  rows.reduce((best, row) => best && measure(best) <= measure(row) ? best : row, null);

// What is fastest, cheapest, takes the least energy, and when buying pays, among rows, beside the one compared with.
function sentences(rows, base, does, costs) {
  const priced = (quantity) => rows.filter((row) => costs(row, quantity) !== null);
  const cheapest = (quantity) => least(surest(priced(quantity)), (row) => costs(row, quantity));
  const renting = cheapest("rented");
  return [
    fastest(least(surest(rows), (row) => row.seconds), least(rows, (row) => row.seconds), base, does),
    renting
      ? `renting ${renting.name}, ${dollars(costs(renting, "rented"))}`
        + `${isGuess(renting) ? ", at its predicted time" : ""} (${dollars(renting.rent)} an hour: ${renting.rentNote}).`
      : "of none of these machines a price by the hour was read.",
    frugal(cheapest("energy"), surest(priced("energy")).length, costs),
    buyOrRent(base, renting, cheapest("bought"), costs),
  ];
}

const called = (row) => row.here ? `this machine${row.standIn ? ` (${row.standIn})` : ""}` : row.name;

function fastest(row, guess, base, does) {
  if (!row) return "no machine is left.";
  const times = base && number(base.seconds / row.seconds);
  const takes = base && isGuess(base) ? "is predicted at" : "takes";
  const beside = base && base !== row
    ? `; ${called(base)} ${takes} ${duration(base.seconds)}, ${times} times as long` : "";
  const faster = guess.seconds < row.seconds && guess !== base
    ? `; ${guess.name} is predicted at ${duration(guess.seconds)}` : "";
  return `${row.name} takes ${duration(row.seconds)} to ${does} (${row.basis})${beside}${faster}.`;
}

function frugal(row, count, costs) {
  if (!row) return "not known: of none of these machines a sensor was read.";
  const [note] = row.energyNote.split(";");
  return `${row.name}, ${energy(costs(row, "energy"))}, of the ${count} with a sensor (${note}).`;
}

function buyOrRent(base, renting, cheapest, costs) {
  if (!renting) return "no price by the hour to hold a purchase against.";
  const owned = base ? base.purchase !== null && base : cheapest;
  if (owned) {
    const hourly = (costs(owned, "electricity") ?? 0) / owned.seconds * 3600;
    const saved = renting.rent * renting.seconds / owned.seconds - hourly;
    const after = saved > 0 ? `after ${number(owned.purchase / saved)} hours of this work` : "never";
    const bought = `${owned.name}, bought at ${dollars(owned.purchase)} (${owned.purchaseNote.split(",")[0]})`;
    const counted = owned.joules === null ? ", electricity not counted" : "";
    return `${bought}, has cost as much as renting ${renting.name} ${after}${counted}.`;
  }
  if (!base) return "no purchase price was read.";
  const worth = dollars(renting.rent * renting.seconds / base.seconds);
  return `what ${called(base)} does in an hour costs ${worth} on a rented ${renting.name}.`;
}
