// The controls of a chart: its type, aggregate, measure, groups, time column and buckets.

import { h, put } from "../ui/dom.js";
import { AGGREGATES, usualAggregate } from "./aggregate.js";
import { CHOICES_MS, stepText } from "./time-steps.js";

/** @typedef {import("./aggregate.js").Aggregate} Aggregate */
/** @typedef {import("./axis-columns.js").AxisColumns} AxisColumns */
/** @typedef {import("./axis-columns.js").ChartKind} ChartKind */
/** @typedef {import("./row-groups.js").Grouping} Grouping */

/** @type {{ [kind in ChartKind]: string }} */
const NAMES = { bars: "Bars", seen: "Live lines", time: "Over time" };

export class ChartControls {
  #axes;
  #changed;
  /** @type {Aggregate} */
  #aggregate;
  /** @type {{ [kind in ChartKind]: number[] }} */
  #by;
  #step = 0;
  #time;
  #selects = h("div", { className: "chart-selects" });

  /**
   * `changed` is called after each choice.
   * @param {AxisColumns} axes
   * @param {() => void} changed
   */
  constructor(axes, changed) {
    this.#axes = axes;
    this.#changed = changed;
    this.kind = axes.kind;
    this.measure = axes.measure;
    this.#aggregate = this.#usual;
    this.#by = { bars: axes.labelAt, time: axes.splitAt, seen: [] };
    this.#time = axes.timeAt;
    this.element = h("div", { className: "chart-controls" }, this.#selects, this.#types());
    this.#draw();
  }

  /** Whether the chart is the one that the page, or the file of views, chose. */
  get isFirst() {
    const { kind, measure, labelAt, splitAt, timeAt } = this.#axes;
    const by = kind === "bars" ? labelAt : splitAt;
    return (
      this.kind === kind &&
      this.measure === measure &&
      this.#aggregate === this.#usual &&
      same(this.#by[kind], kind === "seen" ? [] : by) &&
      this.#time === timeAt
    );
  }

  /** @returns {Grouping} */
  get grouping() {
    const by = this.#by[this.kind] ?? [];
    const single =
      this.kind === "bars" && this.#axes.keyAt.length > 0 && same(by, this.#axes.keyAt);
    return {
      aggregate: single ? "sum" : this.#aggregate,
      measure: this.#aggregate === "count" && !single ? -1 : this.measure,
      by,
      time: this.#time,
      step: this.#step,
      single,
    };
  }

  get #usual() {
    return usualAggregate(this.#axes.columns[this.#axes.measure]?.name ?? "");
  }

  #types() {
    const { kinds } = this.#axes;
    /** @type {HTMLElement[]} */
    const buttons = kinds.map((kind) =>
      h(
        "button",
        {
          type: "button",
          "aria-pressed": String(kind === this.kind),
          onclick: () => {
            this.kind = kind;
            buttons.forEach((button, at) =>
              button.setAttribute("aria-pressed", String(kinds[at] === kind)),
            );
            this.#draw();
            this.#changed();
          },
        },
        NAMES[kind],
      ),
    );
    return buttons.length > 1
      ? h("div", { className: "segments", role: "group", "aria-label": "Chart type" }, buttons)
      : null;
  }

  #draw() {
    if (!this.#axes.kinds.length) return;
    const { single } = this.grouping;
    put(
      this.#selects,
      this.kind === "seen" || single || !this.#axes.measures.length ? null : this.#aggregates(),
      this.grouping.measure < 0 && this.kind !== "seen" ? null : this.#measures(),
      this.kind === "time" ? this.#times() : null,
      this.kind === "seen" ? null : this.#groups(),
      this.kind === "time" ? this.#buckets() : null,
    );
  }

  #aggregates() {
    return choice(
      "Aggregate",
      AGGREGATES,
      (each) => each,
      this.#aggregate,
      (chosen) => {
        this.#aggregate = chosen;
      },
      () => this.#chose("Aggregate"),
    );
  }

  #measures() {
    const { measures, columns } = this.#axes;
    if (measures.length < 2) return null;
    return choice(
      "Measure",
      measures,
      (at) => columns[at].name,
      this.measure,
      (chosen) => {
        this.measure = chosen;
        this.#aggregate = usualAggregate(columns[chosen].name);
      },
      () => this.#chose("Measure"),
    );
  }

  #times() {
    const { times, columns } = this.#axes;
    if (times.length < 2) return null;
    return choice(
      "Time column",
      times,
      (at) => columns[at].name,
      this.#time,
      (chosen) => {
        this.#time = chosen;
      },
      () => this.#chose("Time column"),
    );
  }

  #groups() {
    const { kind } = this;
    const { columns, groupable, labelAt, splitAt } = this.#axes;
    const first = kind === "bars" ? labelAt : splitAt;
    const single = groupable.filter((at) => kind === "bars" || at !== this.#time).map((at) => [at]);
    const all = kind === "bars" ? [first, ...single] : [first, [], ...single];
    const choices = all.filter((by, at) => all.findIndex((other) => same(by, other)) === at);
    if (choices.length < 2) return null;
    const title = kind === "bars" ? "Group by" : "Split by";
    const name = (/** @type {number[]} */ by) =>
      by.length ? `by ${by.map((at) => columns[at].name).join(", ")}` : "no split";
    const chosen = choices.find((by) => same(by, this.#by[kind])) ?? first;
    return choice(
      title,
      choices,
      name,
      chosen,
      (by) => {
        this.#by[kind] = by;
      },
      () => this.#chose(title),
    );
  }

  #buckets() {
    const name = (/** @type {number} */ ms) => (ms ? `per ${stepText(ms)}` : "automatic");
    return choice(
      "Bucket",
      [0, ...CHOICES_MS],
      name,
      this.#step,
      (chosen) => {
        this.#step = chosen;
      },
      () => this.#chose("Bucket"),
    );
  }

  /**
   * Draws the controls that depend on a choice, and keeps the focus.
   * @param {string} title
   */
  #chose(title) {
    this.#draw();
    /** @type {HTMLElement | null} */
    const select = this.#selects.querySelector(`[aria-label="${title}"]`);
    select?.focus();
    this.#changed();
  }
}

/**
 * A select of values by their names.
 * @template T
 * @param {string} title
 * @param {T[]} values
 * @param {(value: T) => string} name
 * @param {T} chosen
 * @param {(value: T) => void} choose
 * @param {() => void} after
 */
function choice(title, values, name, chosen, choose, after) {
  const select = h(
    "select",
    {
      "aria-label": title,
      onchange: () => {
        choose(values[Number(select.value)]);
        after();
      },
    },
    values.map((value, at) => h("option", { value: at, selected: value === chosen }, name(value))),
  );
  return select;
}

/**
 * @param {number[]} one
 * @param {number[]} other
 */
function same(one, other) {
  return one.join() === other.join();
}
