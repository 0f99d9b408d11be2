// Aggregates rows for charts: by label for bars, by time for lines.

import { numberOf, timeOf } from "../format/column-values.js";

/** @typedef {import("./axis-columns.js").AxisColumns} AxisColumns */
/** @typedef {import("./line-chart.js").Series} Series */
/** @typedef {import("../server/responses.d.ts").Cell} Cell */
/** @typedef {import("../rows/row-store.js").RowStore} RowStore */

const BINS = 160;
const DAY_MS = 86_400_000;
const STEPS_MS = [
  1, 10, 100, 1000, 5000, 15_000, 60_000, 300_000, 900_000, 3_600_000, 21_600_000, 86_400_000,
];

/**
 * The `most` rows, or sums by label, with the largest absolute values, and the number of all.
 * @param {RowStore} rows
 * @param {AxisColumns} axes
 * @param {number} measure
 * @param {number} most
 */
export function largest(rows, axes, measure, most) {
  const found = axes.labelsRows
    ? labelled(top(valuesOf(rows, measure), most), axes)
    : top(sumsByLabel(rows, axes, measure), most);
  const items = found.kept;
  items.sort((one, other) => other.value - one.value || (one.label < other.label ? -1 : 1));
  return { items, of: found.of };
}

/**
 * Labels only the selected rows, since labelling all rows of a large view is slow.
 * @param {{ kept: { cells: Cell[], value: number }[], of: number }} found
 * @param {AxisColumns} axes
 */
function labelled({ kept, of }, axes) {
  return { kept: kept.map(({ cells, value }) => ({ label: axes.label(cells), value })), of };
}

/**
 * @template {{ value: number }} T
 * @param {Iterable<T>} found
 * @param {number} most
 */
function top(found, most) {
  /** @type {T[]} */
  const kept = [];
  let of = 0;
  for (const one of found) {
    of += 1;
    const size = Math.abs(one.value);
    if (kept.length === most && size <= Math.abs(kept[most - 1].value)) continue;
    const at = kept.findIndex((other) => Math.abs(other.value) < size);
    kept.splice(at < 0 ? kept.length : at, 0, one);
    if (kept.length > most) kept.pop();
  }
  return { kept, of };
}

/**
 * @param {RowStore} rows
 * @param {number} measure
 */
function* valuesOf(rows, measure) {
  for (const { cells, gone } of rows.list) {
    const value = gone ? null : numberOf(cells[measure]);
    if (value !== null) yield { cells, value };
  }
}

/**
 * @param {RowStore} rows
 * @param {AxisColumns} axes
 * @param {number} measure
 */
function sumsByLabel(rows, axes, measure) {
  /** @type {Map<string, number>} */
  const sums = new Map();
  for (const { cells, value } of valuesOf(rows, measure)) {
    const label = axes.label(cells);
    sums.set(label, (sums.get(label) ?? 0) + value);
  }
  return [...sums].map(([label, value]) => ({ label, value }));
}

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
