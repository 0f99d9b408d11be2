// Selects the columns that a chart can draw, and the kind of chart that it starts with.

import { kindOf } from "../format/column-values.js";

/** @typedef {import("../format/column-values.js").Kind} Kind */
/** @typedef {import("../server/responses.d.ts").Cell} Cell */
/** @typedef {import("../server/responses.d.ts").ChartSettings} ChartSettings */
/** @typedef {import("../server/responses.d.ts").TypedColumn} TypedColumn */

/**
 * Bars by label, lines of the values since the page was opened, lines over a time column.
 * @typedef {"bars" | "seen" | "time"} ChartKind
 */

const LIKELY = /revenue|amount|total|price|score|sum|value|balance|paid/i;
const NUMBERED = /(^|_)id$|_no$/i;

/** Columns are indexes, -1 for none; `settings` is the `chart` of the views file. */
export class AxisColumns {
  #names;
  #settings;

  /**
   * @param {TypedColumn[]} columns
   * @param {string[]} key
   * @param {ChartSettings | null} settings
   */
  constructor(columns, key, settings) {
    this.columns = columns;
    this.#names = columns.map((column) => column.name);
    this.#settings = settings;
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
  get #configuredX() {
    const x = this.#settings?.x;
    return x === undefined ? -1 : this.#names.indexOf(x);
  }

  /** @param {Kind} kind */
  #firstOf(kind) {
    return this.columns.findIndex((column) => kindOf(column.type) === kind);
  }

  #firstTime() {
    const configured = this.#settings?.type === "bars" ? -1 : this.#configuredX;
    return configured >= 0 && kindOf(this.columns[configured].type) === "time"
      ? configured
      : this.#firstOf("time");
  }

  #labels() {
    const overTime = this.#settings?.type === "lines" && this.#configuredX === this.timeAt;
    if (this.#configuredX >= 0 && !overTime) return [this.#configuredX];
    if (this.keyAt.length) return this.keyAt;
    const text = this.#firstOf("text");
    return text >= 0 ? [text] : [];
  }

  #measures() {
    const configured = (this.#settings?.y ?? [])
      .map((name) => this.#names.indexOf(name))
      .filter((at) => at >= 0);
    const found = this.columns
      .map((_, at) => at)
      .filter((at) => kindOf(this.columns[at].type) === "number" && !this.keyAt.includes(at));
    return [...new Set([...configured, ...found])];
  }

  #firstMeasure() {
    const configured = this.#names.indexOf(this.#settings?.y?.[0] ?? "");
    if (configured >= 0) return configured;
    const fair = this.measures.filter((at) => !NUMBERED.test(this.#names[at]));
    const likely = fair.findLast((at) => LIKELY.test(this.#names[at]));
    return likely ?? fair.at(-1) ?? this.measures[0] ?? -1;
  }

  /** @returns {ChartKind[]} */
  #kinds() {
    if (this.#settings?.type === "none") return [];
    if (!this.measures.length) return this.keyAt.length ? [] : ["seen"];
    /** @type {ChartKind[]} */
    const found = this.labelAt.length ? ["bars"] : [];
    if (this.timeAt >= 0) found.push("time");
    return [...found, "seen"];
  }

  #firstKind() {
    const lines = this.#settings?.type === "lines";
    if (this.kinds.includes("time")) {
      const keyIsTime = this.keyAt.length === 1 && this.keyAt[0] === this.timeAt;
      if (lines || !this.keyAt.length || keyIsTime) return "time";
    }
    return lines && this.kinds.includes("seen") ? "seen" : this.kinds[0];
  }
}
