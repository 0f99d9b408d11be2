// The largest values of a view for bars: of single rows, or sums by label.

import { valuesOf } from "./measure-values.js";

/** @typedef {import("./axis-columns.js").AxisColumns} AxisColumns */
/** @typedef {import("../server/responses.d.ts").Cell} Cell */
/** @typedef {import("../rows/row-store.js").RowStore} RowStore */

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
