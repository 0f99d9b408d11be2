// Records a live view at each change, for the live lines of its chart.

import { numberOf } from "../format/column-values.js";
import { count } from "../format/numbers.js";

/** @typedef {import("./axis-columns.js").AxisColumns} AxisColumns */
/** @typedef {import("./line-chart.js").Series} Series */
/** @typedef {import("../server/responses.d.ts").Cell} Cell */
/** @typedef {import("../rows/row-store.js").RowStore} RowStore */

/** @typedef {{ ms: number, cells: Map<string, Cell[]>, size: number }} Frame the rows at a commit */

const FRAMES = 600;
const FRAME_ROWS = 200;

export class LiveLines {
  #axes;
  /** @type {Frame[]} */
  #frames = [];

  /** @param {AxisColumns} axes */
  constructor(axes) {
    this.#axes = axes;
  }

  /** Drops the record, since another table has taken the view's name. */
  reset() {
    this.#frames = [];
  }

  /**
   * Records the rows at the time of their commit; the clocks of writers may differ, but lines never
   * run backwards.
   * @param {RowStore} rows
   * @param {number} committed
   */
  note(rows, committed) {
    const ms = Math.max(committed, this.#frames.at(-1)?.ms ?? committed);
    const many = rows.size > FRAME_ROWS || !this.#axes.keyAt.length;
    const some = many ? [] : rows.list.filter((record) => !record.gone);
    const cells = new Map(some.map((record) => [this.#axes.label(record.cells), record.cells]));
    this.#frames.push({ ms, cells, size: rows.size });
    if (this.#frames.length > FRAMES) {
      // Thins out the older half, so that memory is bounded and the time range stays.
      this.#frames = this.#frames.filter((_, index) => index > FRAMES / 2 || index % 2 === 0);
    }
  }

  /**
   * Lines of the rows with the largest values; for a table without key, the row count.
   * @param {number} size how many rows the view has
   * @param {number} measure
   * @param {number} most how many lines
   * @param {number} until when the lines end
   * @returns {{ series: Series[], hint: string }}
   */
  lines(size, measure, most, until) {
    const hint = "Since you opened this page, at the times of the commits.";
    const frames = this.#frames.filter(({ ms }) => ms <= until);
    if (frames.length < 2)
      return {
        series: [],
        hint:
          until < Infinity ? "This page was opened later." : "The lines start at the next change.",
      };
    if (!this.#axes.keyAt.length)
      return { series: [line(frames, "rows", (frame) => frame.size)], hint };
    const largest = largestLabels(frames[frames.length - 1], measure);
    if (!largest.length)
      return {
        series: [],
        hint: `Lines are drawn for views of up to ${FRAME_ROWS} rows; this one has ${count(size, "row")}.`,
      };
    const series = largest
      .slice(0, most)
      .map((label) => line(frames, label, ({ cells }) => numberOf(cells.get(label)?.[measure])));
    return { series, hint: largest.length > most ? `The ${most} largest. ${hint}` : hint };
  }
}

/**
 * The labels of a frame, the largest value first.
 * @param {Frame} frame
 * @param {number} measure
 */
function largestLabels({ cells }, measure) {
  return [...cells]
    .map(([label, row]) => ({ label, value: numberOf(row[measure]) }))
    .filter(({ value }) => value !== null)
    .sort((one, other) => Math.abs(other.value ?? 0) - Math.abs(one.value ?? 0))
    .map(({ label }) => label);
}

/**
 * @param {Frame[]} frames
 * @param {string} label
 * @param {(frame: Frame) => number | null} valueOf
 * @returns {Series}
 */
function line(frames, label, valueOf) {
  /** @type {Series["points"]} */
  const points = [];
  for (const frame of frames) {
    const value = valueOf(frame);
    if (value !== null) points.push([frame.ms, value]);
  }
  return { label, points };
}
