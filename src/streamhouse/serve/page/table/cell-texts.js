// Formats the cells of a table's rows.

import { formatter, isDouble, isNumbered, isWhole, numberOf } from "../format/column-values.js";

/** @typedef {import("../server/responses.d.ts").TypedColumn} TypedColumn */
/** @typedef {import("../rows/row-store.js").RowRecord} RowRecord */

export class CellTexts {
  #columns;
  #formats;

  /**
   * @param {TypedColumn[]} columns
   * @param {string[]} key
   */
  constructor(columns, key) {
    this.#columns = columns;
    this.#formats = columns.map(({ name, type }) =>
      isWhole(type) && (key.includes(name) || isNumbered(name)) ? String : formatter(type),
    );
  }

  /**
   * Fits the decimals of floats to their size in these records.
   * @param {RowRecord[]} records
   */
  fit(records) {
    this.#columns.forEach(({ type }, at) => {
      if (!isDouble(type)) return;
      const sizes = records.map((record) => Math.abs(numberOf(record.cells[at]) ?? 0));
      this.#formats[at] = formatter(type, Math.max(0, ...sizes));
    });
  }

  /**
   * A cell of a record as text.
   * @param {RowRecord} record
   * @param {number} at
   */
  at({ cells }, at) {
    const value = cells[at];
    return value === null || value === undefined ? "null" : this.#formats[at](value);
  }

  /**
   * The cells of a record as texts.
   * @param {RowRecord} record
   */
  of(record) {
    return record.cells.map((_, at) => this.at(record, at));
  }
}
