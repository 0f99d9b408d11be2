// Formats the cells of a table's rows.

import { formatter, kindOf, numberOf } from "../format/column-values.js";

/** @typedef {import("../server/responses.d.ts").TypedColumn} TypedColumn */
/** @typedef {import("../rows/row-store.js").RowRecord} RowRecord */

export class CellTexts {
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
}
