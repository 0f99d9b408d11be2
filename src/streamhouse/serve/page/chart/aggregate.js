// The aggregates of a chart.

/** @typedef {"sum" | "avg" | "count" | "min" | "max"} Aggregate */

/**
 * What is kept of the values of a group; `rows` also counts those without a value.
 * @typedef {{ rows: number, values: number, sum: number, min: number, max: number }} Totals
 */

/** @type {Aggregate[]} */
export const AGGREGATES = ["sum", "avg", "min", "max", "count"];

const MAXIMA = /(^|_)(max|maximum|highest|most|peak|last|latest)(_|$)/i;
const MINIMA = /(^|_)(min|minimum|lowest|least|first|earliest)(_|$)/i;
const MEANS = /(^|_)(avg|average|mean|median|p\d\d|rate|ratio|share|percent|pct|temperature)(_|$)/i;

/**
 * The aggregate that a column of this name most likely allows: a maximum is never summed.
 * @param {string} name
 * @returns {Aggregate}
 */
export function usualAggregate(name) {
  if (MAXIMA.test(name)) return "max";
  if (MINIMA.test(name)) return "min";
  return MEANS.test(name) ? "avg" : "sum";
}

/** @returns {Totals} */
export function noTotals() {
  return { rows: 0, values: 0, sum: 0, min: Infinity, max: -Infinity };
}

/**
 * Adds the value of a row; null if it has none.
 * @param {Totals} totals
 * @param {number | null} value
 */
export function add(totals, value) {
  totals.rows += 1;
  if (value === null) return;
  totals.values += 1;
  totals.sum += value;
  totals.min = Math.min(totals.min, value);
  totals.max = Math.max(totals.max, value);
}

/**
 * The aggregate of a group; null without values.
 * @param {Totals} totals
 * @param {Aggregate} aggregate
 */
export function valueOf({ rows, values, sum, min, max }, aggregate) {
  if (aggregate === "count") return rows;
  if (!values) return null;
  return { sum, min, max, avg: sum / values }[aggregate];
}
