// Selects the columns that a chart can draw, and the kind of chart that it starts with.

import { kindOf } from "../format/column-values.js";
import { labelOf } from "./row-groups.js";

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
  #live;
  #names;
  #settings;

  /**
   * @param {TypedColumn[]} columns
   * @param {string[]} key
   * @param {ChartSettings | null} settings
   * @param {boolean} live whether the rows change
   */
  constructor(columns, key, settings, live) {
    this.#live = live;
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

  /**
   * The label of a row.
   * @param {Cell[]} cells
   */
  label(cells) {
    return labelOf(cells, this.labelAt);
  }

  /** The columns of the lines over time, if the key has others than the time. */
  get splitAt() {
    return this.keyAt.includes(this.timeAt) ? this.keyAt.filter((at) => at !== this.timeAt) : [];
  }

  /** The columns that the user can group by: those whose values are no measures, and the key's. */
  get groupable() {
    return this.columns.flatMap(({ type }, at) =>
      ["text", "time"].includes(kindOf(type)) ||
      this.keyAt.includes(at) ||
      NUMBERED.test(this.#names[at])
        ? [at]
        : [],
    );
  }

  /** The columns that can be the x axis. */
  get times() {
    return this.columns.flatMap(({ type }, at) => (kindOf(type) === "time" ? [at] : []));
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
    if (!this.measures.length && (this.keyAt.length || !this.#live)) return [];
    /** @type {ChartKind[]} */
    const found = this.labelAt.length && this.measures.length ? ["bars"] : [];
    if (this.timeAt >= 0 && this.measures.length) found.push("time");
    return this.#live ? [...found, "seen"] : found;
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
