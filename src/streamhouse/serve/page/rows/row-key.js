// Keys of rows, and equality of cells.

import { jsonText } from "../format/column-values.js";

/** @typedef {import("../server/responses.d.ts").Cell} Cell */

/**
 * The key of a row as text, from its cells at these indexes.
 * @param {Cell[]} cells
 * @param {number[]} at
 */
export function keyOf(cells, at) {
  if (at.length === 1) return textOf(cells[at[0]]);
  return at.map((index) => textOf(cells[index])).join("\u0001");
}

/** @param {Cell} value */
function textOf(value) {
  if (value === null || value === undefined) return "\u0002";
  return typeof value === "object" ? jsonText(value) : String(value);
}

/**
 * Whether two cells have the same value.
 * @param {Cell} one
 * @param {Cell} other
 */
export function same(one, other) {
  if (one === other) return true;
  return (
    typeof one === "object" &&
    typeof other === "object" &&
    one !== null &&
    other !== null &&
    jsonText(one) === jsonText(other)
  );
}
