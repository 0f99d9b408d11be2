// Sums of a measure over a time column, for lines.

import { timeOf } from "../format/column-values.js";
import { valuesOf } from "./measure-values.js";

/** @typedef {import("./axis-columns.js").AxisColumns} AxisColumns */
/** @typedef {import("../server/responses.d.ts").Cell} Cell */
/** @typedef {import("../rows/row-store.js").RowStore} RowStore */
/** @typedef {import("./line-chart.js").Series} Series */

const BINS = 160;
const DAY_MS = 86_400_000;
const STEPS_MS = [
  1, 10, 100, 1000, 5000, 15_000, 60_000, 300_000, 900_000, 3_600_000, 21_600_000, 86_400_000,
];

/**
 * Sums by the time column, in steps that limit the number of points.
 * @param {RowStore} rows
 * @param {AxisColumns} axes
 * @param {number} measure
 * @param {number} most the largest number of lines
 * @returns {{ series: Series[], hint: string }}
 */
export function overTime(rows, axes, measure, most) {
  const points = [];
  for (const { cells, value } of valuesOf(rows, measure)) {
    const ms = timeOf(cells[axes.timeAt]);
    if (ms !== null) points.push({ label: seriesOf(cells, axes, measure), ms, value });
  }
  if (!points.length) return { series: [], hint: "No row has a time and a value yet." };
  const step = stepFor(points);
  /** @type {Map<string, { label: string, size: number, bins: Map<number, number> }>} */
  const sums = new Map();
  for (const { label, ms, value } of points) {
    const one = sums.get(label) ?? { label, size: 0, bins: new Map() };
    const bin = Math.floor(ms / step) * step;
    one.bins.set(bin, (one.bins.get(bin) ?? 0) + value);
    one.size += Math.abs(value);
    sums.set(label, one);
  }
  const kept = [...sums.values()].sort((one, other) => other.size - one.size).slice(0, most);
  const series = kept.map(({ label, bins }) => ({
    label,
    points: [...bins].sort((one, other) => one[0] - other[0]),
  }));
  const cut = sums.size > most ? `; the ${most} largest of ${sums.size}` : "";
  return { series, hint: `Sums per ${stepText(step)}${cut}.` };
}

/** @param {{ ms: number }[]} points */
function stepFor(points) {
  let [from, to] = [Infinity, -Infinity];
  for (const { ms } of points) [from, to] = [Math.min(from, ms), Math.max(to, ms)];
  const fine = STEPS_MS.find((each) => (to - from) / each <= BINS);
  return fine ?? DAY_MS * Math.ceil((to - from) / DAY_MS / BINS);
}

/**
 * @param {Cell[]} cells
 * @param {AxisColumns} axes
 * @param {number} measure
 */
function seriesOf(cells, { columns, keyAt, timeAt }, measure) {
  const others = keyAt.filter((at) => at !== timeAt);
  if (!keyAt.includes(timeAt) || !others.length) return columns[measure].name;
  return others.map((at) => String(cells[at])).join(" · ");
}

/** @param {number} ms */
function stepText(ms) {
  if (ms >= DAY_MS) return ms === DAY_MS ? "day" : `${ms / DAY_MS} days`;
  if (ms >= 3_600_000) return ms === 3_600_000 ? "hour" : `${ms / 3_600_000} hours`;
  if (ms >= 60_000) return ms === 60_000 ? "minute" : `${ms / 60_000} minutes`;
  return ms >= 1000 ? (ms === 1000 ? "second" : `${ms / 1000} seconds`) : `${ms} ms`;
}
