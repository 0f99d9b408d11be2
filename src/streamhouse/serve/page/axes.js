// Selects the columns that a chart can draw, and the kind of chart that it starts with.

import { kindOf } from "./format.js";

/** @typedef {import("./format.js").Kind} Kind */
/** @typedef {import("./records.d.ts").Cell} Cell */
/** @typedef {import("./records.d.ts").ChartSettings} ChartSettings */
/** @typedef {import("./records.d.ts").TypedColumn} TypedColumn */

/**
 * Bars by label, lines of the values since the page was opened, lines over a time column.
 * @typedef {"bars" | "seen" | "time"} ChartKind
 */

const LIKELY = /revenue|amount|total|price|score|sum|value|balance|paid/i;
const NUMBERED = /(^|_)id$|_no$/i;

/** Columns are indexes, -1 for none; `wanted` is the `chart` of the views file. */
export class Axes {
  #names;
  #wanted;

  /**
   * @param {TypedColumn[]} columns
   * @param {string[]} key
   * @param {ChartSettings | null} wanted
   */
  constructor(columns, key, wanted) {
    this.columns = columns;
    this.#names = columns.map((column) => column.name);
    this.#wanted = wanted;
    const keyAt = key.map((name) => this.#names.indexOf(name));
    this.keyAt = keyAt.includes(-1) ? [] : keyAt;
    this.timeAt = this.#firstTime();
    this.labelAt = this.#labels();
    this.measures = this.#measures();
    this.kinds = this.#kinds();
    this.measure = this.#firstMeasure();
    this.kind = this.#firstKind();
  }

  /** Whether each label identifies one row; otherwise bars sum the rows of a label. */
  get labelsRows() {
    return this.labelAt === this.keyAt;
  }

  /**
   * The label of a row.
   * @param {Cell[]} cells
   */
  label(cells) {
    return this.labelAt
      .map((at) => (cells[at] === null || cells[at] === undefined ? "null" : String(cells[at])))
      .join(" · ");
  }

  /** The column of the setting `x`. */
  get #asked() {
    const x = this.#wanted?.x;
    return x === undefined ? -1 : this.#names.indexOf(x);
  }

  /** @param {Kind} kind */
  #firstOf(kind) {
    return this.columns.findIndex((column) => kindOf(column.type) === kind);
  }

  #firstTime() {
    const asked = this.#wanted?.type === "bars" ? -1 : this.#asked;
    return asked >= 0 && kindOf(this.columns[asked].type) === "time"
      ? asked
      : this.#firstOf("time");
  }

  #labels() {
    const overTime = this.#wanted?.type === "lines" && this.#asked === this.timeAt;
    if (this.#asked >= 0 && !overTime) return [this.#asked];
    if (this.keyAt.length) return this.keyAt;
    const text = this.#firstOf("text");
    return text >= 0 ? [text] : [];
  }

  #measures() {
    const asked = (this.#wanted?.y ?? [])
      .map((name) => this.#names.indexOf(name))
      .filter((at) => at >= 0);
    const found = this.columns
      .map((_, at) => at)
      .filter((at) => kindOf(this.columns[at].type) === "number" && !this.keyAt.includes(at));
    return [...new Set([...asked, ...found])];
  }

  #firstMeasure() {
    const asked = this.#names.indexOf(this.#wanted?.y?.[0] ?? "");
    if (asked >= 0) return asked;
    const fair = this.measures.filter((at) => !NUMBERED.test(this.#names[at]));
    const likely = fair.findLast((at) => LIKELY.test(this.#names[at]));
    return likely ?? fair.at(-1) ?? this.measures[0] ?? -1;
  }

  /** @returns {ChartKind[]} */
  #kinds() {
    if (this.#wanted?.type === "none") return [];
    if (!this.measures.length) return this.keyAt.length ? [] : ["seen"];
    /** @type {ChartKind[]} */
    const found = this.labelAt.length ? ["bars"] : [];
    if (this.timeAt >= 0) found.push("time");
    return [...found, "seen"];
  }

  #firstKind() {
    const lines = this.#wanted?.type === "lines";
    if (this.kinds.includes("time")) {
      const keyIsTime = this.keyAt.length === 1 && this.keyAt[0] === this.timeAt;
      if (lines || !this.keyAt.length || keyIsTime) return "time";
    }
    return lines && this.kinds.includes("seen") ? "seen" : this.kinds[0];
  }
}
