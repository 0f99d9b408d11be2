// Sort orders of rows.

import { jsonText } from "../format/column-values.js";

/** @typedef {import("../format/column-values.js").Kind} Kind */
/** @typedef {import("../server/responses.d.ts").Cell} Cell */
/** @typedef {import("./row-store.js").RowRecord} RowRecord */

/**
 * The order of rows unless a header was clicked.
 * @typedef {"key" | "given" | "newest" | "columns"} Order
 */

/**
 * The clicked column, -1 for none, and whether its order is descending.
 * @typedef {{ at: number, down: boolean }} Sort
 */

/** @typedef {(one: RowRecord, other: RowRecord) => number} Compare */

/**
 * Compares rows by a table's own order; `key` has the columns of the primary key.
 * @param {Order} order
 * @param {Kind[]} kinds
 * @param {number[]} key
 * @returns {Compare}
 */
export function ownOrder(order, kinds, key) {
  if (order === "newest") return (one, other) => other.seq - one.seq;
  if (order === "given") return (one, other) => one.seq - other.seq;
  const at = order === "key" ? key : kinds.map((_, index) => index);
  const by = at.map((index) => comparator(kinds[index]));
  return (one, other) => {
    for (let index = 0; index < at.length; index += 1) {
      const found = by[index](one.cells[at[index]], other.cells[at[index]]);
      if (found) return found;
    }
    return one.seq - other.seq;
  };
}

/**
 * Compares rows by a column, then by `own`; null is last in both directions.
 * @param {Sort} sort
 * @param {Kind} kind
 * @param {Compare} own
 * @returns {Compare}
 */
export function columnOrder({ at, down }, kind, own) {
  const turned = down ? -1 : 1;
  const compare = comparator(kind);
  return (one, other) => {
    const [a, b] = [one.cells[at], other.cells[at]];
    const isEmpty = (a ?? null) === null || (b ?? null) === null;
    return compare(a, b) * (isEmpty ? 1 : turned) || own(one, other);
  };
}

/**
 * Compares cells of a kind; NaN is the greatest number, and null is last.
 * @param {Kind} kind
 * @returns {(one: Cell, other: Cell) => number}
 */
function comparator(kind) {
  /** @param {Cell} value */
  const as = (value) => (kind === "number" && typeof value === "string" ? Number(value) : value);
  return (one, other) => {
    const a = as(one);
    const b = as(other);
    if (a === b) return 0;
    if (a === null || a === undefined) return b === null || b === undefined ? 0 : 1;
    if (b === null || b === undefined) return -1;
    if (Number.isNaN(a) || Number.isNaN(b)) return Number(Number.isNaN(a)) - Number(Number.isNaN(b));
    if (kind === "nested") return compareText(jsonText(a), jsonText(b));
    return a < b ? -1 : 1;
  };
}

/**
 * @param {string} one
 * @param {string} other
 */
function compareText(one, other) {
  if (one === other) return 0;
  return one < other ? -1 : 1;
}
