// The chart of a view: bars by group, lines of the live values, lines over a time column.

import { formatter } from "../format/column-values.js";
import { count, short } from "../format/numbers.js";
import { messageOf } from "../server/errors.js";
import { serverNow } from "../server/server-clock.js";
import { h, put, say } from "../ui/dom.js";
import { skeleton } from "../ui/placeholder.js";
import { AxisColumns } from "./axis-columns.js";
import { BarChart } from "./bar-chart.js";
import { ChartControls } from "./chart-controls.js";
import { LineChart } from "./line-chart.js";
import { LiveLines } from "./live-lines.js";
import { largestGroups, timeGroups } from "./row-groups.js";
import { ServerGroups } from "./server-groups.js";
import { stepText } from "./time-steps.js";

/** @typedef {import("./row-groups.js").Grouping} Grouping */
/** @typedef {import("./row-groups.js").LargestGroups} LargestGroups */
/** @typedef {import("./row-groups.js").TimeGroups} TimeGroups */
/** @typedef {import("./server-groups.js").ServerRows} ServerRows */
/** @typedef {import("../server/responses.d.ts").ChartSettings} ChartSettings */
/** @typedef {import("../server/responses.d.ts").TypedColumn} TypedColumn */
/** @typedef {import("../rows/row-store.js").RowStore} RowStore */

/**
 * What the rows are: `until` is the time of a past snapshot in ms, null for the live rows; `server`
 * names all rows of a large view, which the server groups.
 * @typedef {{ until?: number | null, server?: ServerRows | null }} Scope
 */

const TOP_BARS = 20;
const TOP_LINES = 6;
const LARGE = 5000;
const LARGE_MS = 800;
const SERVER_MS = 250;
const MIN_PX = 40;
const SHORT_FROM = 1e7;

export class Chart {
  #axes;
  #settings;
  #frames;
  #controls;
  #watch;
  /** @type {RowStore | null} */
  #rows = null;
  /** @type {Scope} */
  #scope = {};
  #timer = 0;
  /** @type {AbortController | null} */
  #request = null;
  /** What the server groups, its groups, and why there are none. */
  #shape = "";
  /** @type {{ found: LargestGroups | TimeGroups, snapshot: number | null } | null} */
  #groups = null;
  #failure = "";
  #bars = new BarChart();
  #lines = new LineChart();
  #drawn = "";
  #plot = h(
    "div",
    { className: "plot", role: "region", "aria-label": "Plot", tabIndex: 0 },
    skeleton(6),
  );
  #title = h("h2", {}, "Chart");
  #hint = h("p", { className: "hint", role: "status" });

  /**
   * `settings` is the `chart` of the views file; `live`: the rows change.
   * @param {TypedColumn[]} columns
   * @param {string[]} key
   * @param {ChartSettings | null} settings
   * @param {boolean} [live]
   */
  constructor(columns, key, settings, live = true) {
    this.#axes = new AxisColumns(columns, key, settings, live);
    this.#settings = settings;
    this.#frames = new LiveLines(this.#axes);
    this.#controls = new ChartControls(this.#axes, () => this.#later(0));
    this.element = h(
      "section",
      { className: "chart", "aria-label": "Chart" },
      h("div", { className: "chart-head" }, this.#title, this.#controls.element),
      this.#plot,
      this.#hint,
    );
    this.#watch = new ResizeObserver(() => this.#later(0));
    this.#watch.observe(this.#plot);
  }

  close() {
    this.#watch.disconnect();
    clearTimeout(this.#timer);
    this.#request?.abort();
  }

  /** Whether the view has columns for any chart. */
  get possible() {
    return this.#axes.kinds.length > 0;
  }

  /**
   * Draws these rows soon.
   * @param {RowStore} rows
   * @param {Scope} [scope]
   */
  show(rows, scope = {}) {
    this.#rows = rows;
    this.#scope = scope;
    // Drawing reads all rows of the view: for a large one that is too much for each frame.
    this.#later(scope.server ? SERVER_MS : rows.size > LARGE ? LARGE_MS : 0);
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
    const { kind, grouping } = this.#controls;
    if (kind === "seen") this.#drawSeen(this.#rows, width);
    else if (this.#scope.server) this.#drawFromServer(this.#scope.server, width);
    else if (kind === "bars") this.#drawBars(largestGroups(this.#rows, grouping, TOP_BARS), width);
    else this.#drawTime(timeGroups(this.#rows, grouping, TOP_LINES), width);
  }

  /**
   * Draws the groups that the server has found, and asks for them if they are of other rows.
   * @param {ServerRows} rows
   * @param {number} width
   */
  #drawFromServer(rows, width) {
    const { kind, grouping } = this.#controls;
    const shape = JSON.stringify([kind, grouping, rows.filter, this.#scope.until]);
    if (shape !== this.#shape) {
      this.#request?.abort();
      this.#request = null;
      this.#shape = shape;
      this.#groups = null;
      this.#mount("skeleton", [skeleton(6)]);
      say(this.#hint, "");
    }
    if (this.#groups) this.#drawGroups(this.#groups.found, width);
    // A view that changes all the time must not end each request with the next.
    if (!this.#request && this.#groups?.snapshot !== rows.snapshot) this.#ask(rows);
  }

  /** @param {ServerRows} rows */
  async #ask(rows) {
    const request = new AbortController();
    this.#request = request;
    this.#failure = "";
    const { kind, grouping } = this.#controls;
    try {
      const groups = new ServerGroups(this.#axes.columns, rows, request.signal);
      const found = await (kind === "bars"
        ? groups.largest(grouping, TOP_BARS)
        : groups.overTime(grouping, TOP_LINES));
      if (request.signal.aborted) return;
      this.#groups = { found, snapshot: rows.snapshot };
      this.#request = null;
      this.#later(0);
    } catch (problem) {
      if (request.signal.aborted) return;
      this.#request = null;
      // Asked again when the rows change, or the user chooses another chart.
      this.#groups = { found: { items: [], of: 0 }, snapshot: rows.snapshot };
      this.#mount("none", []);
      this.#failure = `The server cannot group the rows: ${messageOf(problem)}`;
      say(this.#hint, this.#failure);
    }
  }

  /**
   * @param {LargestGroups | TimeGroups} found
   * @param {number} width
   */
  #drawGroups(found, width) {
    if (this.#failure) return;
    if ("items" in found) this.#drawBars(found, width);
    else this.#drawTime(found, width);
  }

  /**
   * @param {string} kind
   * @param {Element[]} parts
   */
  #mount(kind, parts) {
    if (this.#drawn !== kind) put(this.#plot, parts);
    this.#drawn = kind;
    this.#plot.classList.toggle("waiting", kind === "none");
  }

  /**
   * Shows the title of the views file, as long as the chart is the one that the file describes.
   * @param {string} usual
   */
  #entitle(usual) {
    say(this.#title, (this.#controls.isFirst && this.#settings?.title) || usual);
  }

  /** The measure with its aggregate: "revenue", "max of price", "number of rows". */
  get #measured() {
    const { aggregate, measure, single } = this.#controls.grouping;
    if (measure < 0) return "number of rows";
    const { name } = this.#axes.columns[measure];
    return single || aggregate === "sum" ? name : `${aggregate} of ${name}`;
  }

  /** @param {number} largest */
  #formatter(largest) {
    const { aggregate, measure } = this.#controls.grouping;
    if (measure < 0) return formatter("BIGINT");
    const { type } = this.#axes.columns[measure];
    return formatter(aggregate === "avg" ? "DOUBLE" : type, largest);
  }

  /**
   * @param {LargestGroups} found
   * @param {number} width
   */
  #drawBars({ items, of }, width) {
    const { columns } = this.#axes;
    const { by, single } = this.#controls.grouping;
    const format = this.#formatter(Math.max(0, ...items.map((item) => Math.abs(item.value))));
    this.#entitle(`${this.#measured} by ${by.map((at) => columns[at].name).join(", ")}`);
    const cut =
      of > items.length ? `The ${TOP_BARS} largest of ${count(of, single ? "row" : "group")}.` : "";
    say(this.#hint, items.length ? cut : `No row has a value of ${this.#measured} yet.`);
    if (!items.length) return this.#mount("none", []);
    this.#mount("bars", [this.#bars.svg]);
    this.#bars.draw(
      items.map((item) => ({ ...item, text: format(item.cell) })),
      { width, height: this.#plot.clientHeight },
      this.#title.textContent ?? "",
    );
  }

  /**
   * @param {TimeGroups} found
   * @param {number} width
   */
  #drawTime({ series, of, step }, width) {
    const { aggregate, time, measure } = this.#controls.grouping;
    this.#entitle(`${this.#measured} over ${this.#axes.columns[time].name}`);
    const lines = series.map((one) => ({ ...one, label: one.label || this.#measured }));
    const now = this.#scope.until ?? serverNow();
    const open = lines.some(({ points }) => (points.at(-1)?.[0] ?? 0) + step > now);
    const parts = [
      `${{ sum: "Sums", avg: "Averages", min: "Minima", max: "Maxima", count: "Rows" }[aggregate]} per ${stepText(step)}`,
      of > series.length ? `the ${series.length} largest of ${of}` : "",
      open ? "dashed: not over yet" : "",
    ];
    say(
      this.#hint,
      series.length ? `${parts.filter(Boolean).join("; ")}.` : "No row has a time and a value yet.",
    );
    const openFrom = open ? now - step : Infinity;
    this.#drawLines(lines, width, measure < 0 ? "BIGINT" : null, openFrom);
  }

  /**
   * @param {RowStore} rows
   * @param {number} width
   */
  #drawSeen(rows, width) {
    const { columns, keyAt } = this.#axes;
    // Without a key, rows cannot be followed: the live line is the row count.
    const { name, type } = keyAt.length
      ? columns[this.#controls.measure]
      : { name: "rows", type: "BIGINT" };
    const until = this.#scope.until ?? Infinity;
    const { series, hint } = this.#frames.lines(
      rows.size,
      this.#controls.measure,
      TOP_LINES,
      until,
    );
    this.#entitle(`${name}, live`);
    say(this.#hint, hint);
    this.#drawLines(series, width, type, Infinity);
  }

  /**
   * @param {import("./line-chart.js").Series[]} series
   * @param {number} width
   * @param {string | null} type that of the values; null for that of the measure
   * @param {number} openFrom points from this time on are of a bucket that is not over
   */
  #drawLines(series, width, type, openFrom) {
    if (!series.length) return this.#mount("none", []);
    this.#mount("lines", [this.#lines.svg, this.#lines.legend]);
    const size = Math.max(
      ...series.flatMap((one) => one.points.map(([, value]) => Math.abs(value))),
    );
    const format =
      size >= SHORT_FROM ? short : type ? formatter(type, size) : this.#formatter(size);
    this.#lines.draw(
      series,
      { width, height: this.#plot.clientHeight },
      this.#title.textContent ?? "",
      format,
      openFrom,
    );
  }
}
