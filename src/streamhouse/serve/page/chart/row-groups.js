// Groups the rows that the page has: the largest groups for bars, and groups over time for lines.

import { numberOf, timeOf } from "../format/column-values.js";
import { add, noTotals, valueOf } from "./aggregate.js";
import { stepFor } from "./time-steps.js";

/** @typedef {import("./aggregate.js").Aggregate} Aggregate */
/** @typedef {import("./aggregate.js").Totals} Totals */
/** @typedef {import("./line-chart.js").Series} Series */
/** @typedef {import("../server/responses.d.ts").Cell} Cell */
/** @typedef {import("../rows/row-store.js").RowStore} RowStore */

/**
 * What a chart draws. Columns are indexes: the measure is -1 for a count of rows, `by` has the
 * columns of the groups, `time` that of the x axis. `step` is the length of a bucket, 0 for one that
 * fits. `single`: each group is one row, whose value is drawn as it is.
 * @typedef {Object} Grouping
 * @property {Aggregate} aggregate
 * @property {number} measure
 * @property {number[]} by
 * @property {number} time
 * @property {number} step
 * @property {boolean} single
 */

/**
 * A group: its value, and the cell that has all its digits.
 * @typedef {{ label: string, value: number, cell: Cell }} Group
 */

/** @typedef {{ items: Group[], of: number }} LargestGroups `of`: how many groups there are */
/** @typedef {{ series: Series[], of: number, step: number }} TimeGroups */

/**
 * The label of a group.
 * @param {Cell[]} cells
 * @param {number[]} at
 */
export function labelOf(cells, at) {
  return at.map((index) => String(cells[index] ?? "null")).join(" · ");
}

/**
 * The largest value first.
 * @param {Group[]} items
 */
export function byValue(items) {
  return items.sort((one, other) => other.value - one.value || (one.label < other.label ? -1 : 1));
}

/**
 * The `most` groups with the largest absolute values.
 * @param {RowStore} rows
 * @param {Grouping} grouping
 * @param {number} most
 * @returns {LargestGroups}
 */
export function largestGroups(rows, grouping, most) {
  const { kept, of } = grouping.single
    ? top(singleRows(rows, grouping.measure), most)
    : top(groups(rows, grouping), most);
  // Labels only what is drawn, since labelling all rows of a large view is slow.
  return {
    items: byValue(
      kept.map(({ cells, value }) => ({
        label: labelOf(cells, grouping.by),
        value,
        cell: grouping.single ? cells[grouping.measure] : value,
      })),
    ),
    of,
  };
}

/**
 * @param {RowStore} rows
 * @param {number} measure
 */
function* singleRows(rows, measure) {
  for (const { cells, gone } of rows.list) {
    const value = gone ? null : numberOf(cells[measure]);
    if (value !== null) yield { cells, value };
  }
}

/**
 * @param {RowStore} rows
 * @param {Grouping} grouping
 */
function* groups(rows, { aggregate, measure, by }) {
  /** @type {Map<string, { cells: Cell[], totals: Totals }>} */
  const found = new Map();
  for (const { cells, gone } of rows.list) {
    if (gone) continue;
    const label = labelOf(cells, by);
    const group = found.get(label) ?? { cells, totals: noTotals() };
    add(group.totals, numberOf(cells[measure]));
    found.set(label, group);
  }
  for (const { cells, totals } of found.values()) {
    const value = valueOf(totals, aggregate);
    if (value !== null) yield { cells, value };
  }
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
 * The groups over the time column, in buckets; those with the largest values.
 * @param {RowStore} rows
 * @param {Grouping} grouping
 * @param {number} most the largest number of lines
 * @returns {TimeGroups}
 */
export function timeGroups(rows, grouping, most) {
  /** @type {{ label: string, ms: number, value: number | null }[]} */
  const points = [];
  let [from, to] = [Infinity, -Infinity];
  for (const { cells, gone } of rows.list) {
    const ms = gone ? null : timeOf(cells[grouping.time]);
    const value = numberOf(cells[grouping.measure]);
    if (ms === null || (value === null && grouping.aggregate !== "count")) continue;
    points.push({ label: labelOf(cells, grouping.by), ms, value });
    [from, to] = [Math.min(from, ms), Math.max(to, ms)];
  }
  if (!points.length) return { series: [], of: 0, step: 0 };
  const step = grouping.step || stepFor(from, to);
  /** @type {Map<string, { size: number, bins: Map<number, Totals> }>} */
  const lines = new Map();
  for (const { label, ms, value } of points) {
    const line = lines.get(label) ?? { size: 0, bins: new Map() };
    const bin = Math.floor(ms / step) * step;
    const totals = line.bins.get(bin) ?? noTotals();
    add(totals, value);
    line.bins.set(bin, totals);
    line.size += Math.abs(value ?? 1);
    lines.set(label, line);
  }
  const kept = [...lines].sort(([, one], [, other]) => other.size - one.size).slice(0, most);
  const series = kept.map(([label, { bins }]) => ({
    label,
    points: [...bins]
      .map(
        ([ms, totals]) =>
          /** @type {[number, number]} */ ([ms, valueOf(totals, grouping.aggregate)]),
      )
      .sort((one, other) => one[0] - other[0]),
  }));
  return { series, of: lines.size, step };
}
