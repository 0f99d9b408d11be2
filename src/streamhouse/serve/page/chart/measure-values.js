// The rows that have a value of the measure, with that value as a number.

import { numberOf } from "../format/column-values.js";

/** @typedef {import("../server/responses.d.ts").Cell} Cell */
/** @typedef {import("../rows/row-store.js").RowStore} RowStore */

/**
 * @param {RowStore} rows
 * @param {number} measure
 */
export function* valuesOf(rows, measure) {
  for (const { cells, gone } of rows.list) {
    const value = gone ? null : numberOf(cells[measure]);
    if (value !== null) yield { cells, value };
  }
}
