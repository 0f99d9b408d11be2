// Filters the rows of a table by words: a row matches if its texts contain all of them.

/** @typedef {import("../rows/row-store.js").RowRecord} RowRecord */
/** @typedef {import("./cell-texts.js").CellTexts} CellTexts */

export class RowFilter {
  #texts;
  /** @type {string[]} */
  #words = [];

  /** @param {CellTexts} texts */
  constructor(texts) {
    this.#texts = texts;
  }

  /** The words; empty if all rows match. */
  get words() {
    return this.#words;
  }

  /** @param {string} text */
  set(text) {
    this.#words = text.toLowerCase().split(/\s+/).filter(Boolean);
  }

  /**
   * The records that match, in the same order.
   * @param {RowRecord[]} records
   */
  apply(records) {
    return this.#words.length ? records.filter((record) => this.#matches(record)) : records;
  }

  /** @param {RowRecord} record */
  #matches(record) {
    const text = (record.text ??= this.#texts.of(record).join("\u0000").toLowerCase());
    return this.#words.every((word) => text.includes(word));
  }
}
