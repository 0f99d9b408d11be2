// The chart of a view: bars by key, lines of the live values, lines over a time column.

import { formatter } from "../format/column-values.js";
import { count, short } from "../format/numbers.js";
import { h, put, say } from "../ui/dom.js";
import { AxisColumns } from "./axis-columns.js";
import { BarChart } from "./bar-chart.js";
import { largest } from "./largest-values.js";
import { LineChart } from "./line-chart.js";
import { LiveLines } from "./live-lines.js";
import { overTime } from "./sums-over-time.js";

/** @typedef {import("./axis-columns.js").ChartKind} ChartKind */
/** @typedef {import("../server/responses.d.ts").ChartSettings} ChartSettings */
/** @typedef {import("../server/responses.d.ts").TypedColumn} TypedColumn */
/** @typedef {import("../rows/row-store.js").RowStore} RowStore */

const TOP_BARS = 20;
const TOP_LINES = 6;
const LARGE = 5000;
const LARGE_MS = 800;
const MIN_PX = 40;
const SHORT_FROM = 1e7;
/** @type {{ [kind in ChartKind]: string }} */
const NAMES = { bars: "Bars", seen: "Live lines", time: "Over time" };

export class Chart {
  #axes;
  #settings;
  #frames;
  #measure;
  #kind;
  #watch;
  /** @type {RowStore | null} */
  #rows = null;
  #timer = 0;
  #bars = new BarChart();
  #lines = new LineChart();
  #drawn = "";
  #plot = h("div", { className: "plot" });
  #title = h("h2");
  #hint = h("p", { className: "hint" });

  /**
   * `settings` is the `chart` of the views file.
   * @param {TypedColumn[]} columns
   * @param {string[]} key
   * @param {ChartSettings | null} settings
   */
  constructor(columns, key, settings) {
    this.#axes = new AxisColumns(columns, key, settings);
    this.#settings = settings;
    this.#frames = new LiveLines(this.#axes);
    this.#measure = this.#axes.measure;
    this.#kind = this.#axes.kind;
    this.element = h(
      "section",
      { className: "chart", "aria-label": "Chart" },
      h("div", { className: "chart-head" }, this.#title, this.#controls()),
      this.#plot,
      this.#hint,
    );
    this.#watch = new ResizeObserver(() => this.#later(0));
    this.#watch.observe(this.#plot);
  }

  close() {
    this.#watch.disconnect();
    clearTimeout(this.#timer);
  }

  /** Whether the view has columns for any chart. */
  get possible() {
    return this.#axes.kinds.length > 0;
  }

  /**
   * Draws these rows soon.
   * @param {RowStore} rows
   */
  show(rows) {
    this.#rows = rows;
    // Drawing reads all rows of the view: for a large one that is too much for each frame.
    this.#later(rows.size > LARGE ? LARGE_MS : 0);
  }

  /**
   * Records the rows of the live view, for the live lines; `time` is that of their commit.
   * @param {RowStore} rows
   * @param {string | null} time null before the first commit
   */
  note(rows, time) {
    if (time !== null) this.#frames.note(rows, Date.parse(time));
  }

  /** Drops the recorded lines, since another table has taken the view's name. */
  reset() {
    this.#frames.reset();
  }

  #controls() {
    const { kinds, measures, columns } = this.#axes;
    /** @type {HTMLElement[]} */
    const buttons = kinds.map((kind) =>
      h(
        "button",
        {
          type: "button",
          "aria-pressed": String(kind === this.#kind),
          onclick: () => this.#choose(kind, buttons),
        },
        NAMES[kind],
      ),
    );
    const select = h(
      "select",
      { "aria-label": "Measure", onchange: () => this.#measureBy(Number(select.value)) },
      measures.map((at) =>
        h("option", { value: at, selected: at === this.#measure }, columns[at].name),
      ),
    );
    return h(
      "div",
      { className: "chart-controls" },
      measures.length > 1 ? select : null,
      buttons.length > 1
        ? h("div", { className: "segments", role: "group", "aria-label": "Chart type" }, buttons)
        : null,
    );
  }

  /**
   * @param {ChartKind} kind
   * @param {HTMLElement[]} buttons
   */
  #choose(kind, buttons) {
    this.#kind = kind;
    buttons.forEach((button, index) =>
      button.setAttribute("aria-pressed", String(this.#axes.kinds[index] === kind)),
    );
    this.#later(0);
  }

  /** @param {number} at */
  #measureBy(at) {
    this.#measure = at;
    this.#later(0);
  }

  /** @param {number} ms */
  #later(ms) {
    if (this.#timer) return;
    this.#timer = setTimeout(() => {
      this.#timer = 0;
      this.#draw();
    }, ms);
  }

  #draw() {
    const width = Math.floor(this.#plot.clientWidth);
    if (!this.#rows || width < MIN_PX) return;
    const drawn =
      this.#kind === "bars"
        ? this.#drawBars(this.#rows, width)
        : this.#drawLines(this.#rows, width);
    if (!drawn) this.#mount("none", []);
    this.#plot.classList.toggle("waiting", !drawn);
  }

  /**
   * @param {string} kind
   * @param {Element[]} parts
   */
  #mount(kind, parts) {
    if (this.#drawn !== kind) put(this.#plot, parts);
    this.#drawn = kind;
  }

  /**
   * Shows the title of the views file, as long as the chart is the one that the file describes.
   * @param {string} usual
   */
  #entitle(usual) {
    const { kind, measure } = this.#axes;
    const isConfigured = this.#kind === kind && this.#measure === measure;
    say(this.#title, (isConfigured && this.#settings?.title) || usual);
  }

  /**
   * @param {RowStore} rows
   * @param {number} width
   */
  #drawBars(rows, width) {
    const { columns, labelAt } = this.#axes;
    const { name, type } = columns[this.#measure];
    const { items, of } = largest(rows, this.#axes, this.#measure, TOP_BARS);
    const format = formatter(type, Math.max(0, ...items.map((item) => Math.abs(item.value))));
    this.#entitle(`${name} by ${labelAt.map((at) => columns[at].name).join(", ")}`);
    const cut = of > items.length ? `The ${TOP_BARS} largest of ${count(of, "row")}.` : "";
    say(this.#hint, items.length ? cut : `No row has a value of ${name} yet.`);
    if (!items.length) return false;
    this.#mount("bars", [this.#bars.svg]);
    this.#bars.draw(
      items.map((item) => ({ ...item, text: format(item.value) })),
      { width, height: this.#plot.clientHeight },
      this.#title.textContent ?? "",
    );
    return true;
  }

  /**
   * @param {RowStore} rows
   * @param {number} width
   */
  #drawLines(rows, width) {
    const { columns, keyAt, timeAt } = this.#axes;
    const isTime = this.#kind === "time";
    // Without a key, rows cannot be followed: the live line is the row count.
    const { name, type } =
      isTime || keyAt.length ? columns[this.#measure] : { name: "rows", type: "BIGINT" };
    const { series, hint } = isTime
      ? overTime(rows, this.#axes, this.#measure, TOP_LINES)
      : this.#frames.lines(rows.size, this.#measure, TOP_LINES);
    this.#entitle(isTime ? `${name} over ${columns[timeAt].name}` : `${name}, live`);
    say(this.#hint, hint);
    if (!series.length) return false;
    this.#mount("lines", [this.#lines.svg, this.#lines.legend]);
    const sizes = series.flatMap((one) => one.points.map(([, value]) => Math.abs(value)));
    const size = Math.max(...sizes);
    const format = size >= SHORT_FROM ? short : formatter(type, size);
    this.#lines.draw(
      series,
      { width, height: this.#plot.clientHeight },
      this.#title.textContent ?? "",
      format,
    );
    return true;
  }
}
