// Formats the rows of a table, and matches them against the filter.

import { formatter, kindOf, numberOf } from "./format.js";

/** @typedef {import("./records.d.ts").TypedColumn} TypedColumn */
/** @typedef {import("./rows.js").RowRecord} RowRecord */

export class Texts {
  #columns;
  #formats;

  /** @param {TypedColumn[]} columns */
  constructor(columns) {
    this.#columns = columns;
    this.#formats = columns.map((column) => formatter(column.type));
  }

  /**
   * Fits the decimals of floats to their size in these records.
   * @param {RowRecord[]} records
   */
  fit(records) {
    this.#columns.forEach(({ type }, at) => {
      if (kindOf(type) !== "number") return;
      const sizes = records.map((record) => Math.abs(numberOf(record.cells[at]) ?? 0));
      this.#formats[at] = formatter(type, Math.max(0, ...sizes));
    });
  }

  /**
   * The cells of a record as texts.
   * @param {RowRecord} record
   */
  of(record) {
    return record.cells.map((value, at) =>
      value === null || value === undefined ? "null" : this.#formats[at](value),
    );
  }

  /**
   * Whether a record contains all of these words.
   * @param {RowRecord} record
   * @param {string[]} words
   */
  matches(record, words) {
    const text = (record.text ??= this.of(record).join("\u0000").toLowerCase());
    return words.every((word) => text.includes(word));
  }
}
