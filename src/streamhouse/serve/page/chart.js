// The chart of a view: bars by key, lines of what was seen, lines over a time column.

import { Bars } from "./bars.js";
import { h, put, say } from "./dom.js";
import { count, formatter, kindOf, numberOf, short, timeOf } from "./format.js";
import { Lines } from "./lines.js";

const TOP_BARS = 20;
const LARGE = 5000;
const LARGE_MS = 800;
const TOP_LINES = 6;
const FRAMES = 600;
const FRAME_ROWS = 200;
const BINS = 160;
const STEPS_MS = [
  1, 10, 100, 1000, 5000, 15_000, 60_000, 300_000, 900_000, 3_600_000, 21_600_000, 86_400_000,
];
const LIKELY = /revenue|amount|total|price|score|sum|value|balance|paid/i;
const NUMBERED = /(^|_)id$|_no$/i;
const NAMES = { bars: "Bars", seen: "Live lines", time: "Over time" };

/** `wanted` is the served view's own `chart`: `{type, x, y}`, or null. */
export class Chart {
  #rows = null;
  #frames = [];
  #timer = 0;
  #bars = new Bars();
  #lines = new Lines();
  #drawn = "";

  constructor(columns, key, wanted) {
    this.columns = columns;
    const names = columns.map((column) => column.name);
    this.keyAt = key.every((name) => names.includes(name))
      ? key.map((name) => names.indexOf(name))
      : [];
    this.timeAt = this.#indexOfKind("time", wanted?.type === "bars" ? null : wanted?.x);
    this.labelAt = this.#labels(names, wanted);
    this.measures = this.#measuresOf(names, wanted);
    this.kinds = wanted?.type === "none" ? [] : this.#kindsOf();
    this.measure = this.#likely(names, wanted);
    this.kind = this.#firstKind(wanted);
    this.plot = h("div", { className: "plot" });
    this.title = h("h2", {});
    this.hint = h("p", { className: "hint" });
    this.element = h(
      "section",
      { className: "chart", "aria-label": "Chart" },
      h("div", { className: "chart-head" }, this.title, this.#controls()),
      this.plot,
      this.hint,
    );
    this.watch = new ResizeObserver(() => this.#later(0));
    this.watch.observe(this.plot);
  }

  close() {
    this.watch.disconnect();
    clearTimeout(this.#timer);
  }

  /** Whether there is anything to draw. */
  get possible() {
    return this.kinds.length > 0;
  }

  /** Draws these rows soon. */
  show(rows) {
    this.#rows = rows;
    // A large view is gone through as a whole, which must not take every frame.
    this.#later(rows.size > LARGE ? LARGE_MS : 0);
  }

  /** The view is another table from now on: the lines begin anew. */
  anew() {
    this.#frames = [];
  }

  #indexOfKind(kind, name) {
    const at = this.columns.findIndex(
      (column) => column.name === name && kindOf(column.type) === kind,
    );
    return at >= 0 ? at : this.columns.findIndex((column) => kindOf(column.type) === kind);
  }

  #labels(names, wanted) {
    const asked = names.indexOf(wanted?.x);
    const overTime = wanted?.type === "lines" && asked === this.timeAt;
    if (asked >= 0 && !overTime) return [asked];
    if (this.keyAt.length) return this.keyAt;
    const text = this.columns.findIndex((column) => kindOf(column.type) === "text");
    return text >= 0 ? [text] : [];
  }

  #measuresOf(names, wanted) {
    const asked = [wanted?.y ?? []]
      .flat()
      .map((name) => names.indexOf(name))
      .filter((at) => at >= 0);
    const found = this.columns
      .map((_, at) => at)
      .filter((at) => kindOf(this.columns[at].type) === "number" && !this.keyAt.includes(at));
    return [...new Set([...asked, ...found])];
  }

  #likely(names, wanted) {
    const asked = names.indexOf([wanted?.y ?? []].flat()[0]);
    if (asked >= 0) return asked;
    const fair = this.measures.filter((at) => !NUMBERED.test(names[at]));
    return fair.findLast((at) => LIKELY.test(names[at])) ?? fair.at(-1) ?? this.measures[0] ?? -1;
  }

  #kindsOf() {
    if (!this.measures.length) return this.keyAt.length ? [] : ["seen"];
    const found = this.labelAt.length ? ["bars"] : [];
    if (this.timeAt >= 0) found.push("time");
    return [...found, "seen"];
  }

  #firstKind(wanted) {
    if (wanted?.type === "lines") return this.kinds.includes("time") ? "time" : this.kinds.at(-1);
    if (!this.keyAt.length && this.kinds.includes("time")) return "time";
    if (this.timeAt >= 0 && this.keyAt.includes(this.timeAt) && this.keyAt.length === 1)
      return "time";
    return this.kinds[0];
  }

  #controls() {
    const buttons = this.kinds.map((kind) =>
      h(
        "button",
        {
          type: "button",
          "aria-pressed": String(kind === this.kind),
          onclick: () => this.#choose(kind, buttons),
        },
        NAMES[kind],
      ),
    );
    const select = h(
      "select",
      { "aria-label": "Measure", onchange: () => this.#measureBy(Number(select.value)) },
      this.measures.map((at) =>
        h("option", { value: at, selected: at === this.measure }, this.columns[at].name),
      ),
    );
    return h(
      "div",
      { className: "chart-controls" },
      this.measures.length > 1 ? select : null,
      buttons.length > 1
        ? h("div", { className: "segments", role: "group", "aria-label": "Kind of chart" }, buttons)
        : null,
    );
  }

  #choose(kind, buttons) {
    this.kind = kind;
    buttons.forEach((button, index) =>
      button.setAttribute("aria-pressed", String(this.kinds[index] === kind)),
    );
    this.#later(0);
  }

  #measureBy(at) {
    this.measure = at;
    this.#later(0);
  }

  /** Keeps what the live view was at a time, for the lines. */
  note(rows, ms) {
    const many = rows.size > FRAME_ROWS || !this.keyAt.length;
    const some = many ? [] : rows.list.filter((record) => !record.gone);
    const cells = new Map(some.map((record) => [this.#label(record.cells), record.cells]));
    this.#frames.push({ ms, cells, size: rows.size });
    if (this.#frames.length > FRAMES) {
      // The older half at half the density: an hour stays an hour.
      this.#frames = this.#frames.filter((_, index) => index > FRAMES / 2 || index % 2 === 0);
    }
  }

  #label(cells) {
    return this.labelAt
      .map((at) => (cells[at] === null || cells[at] === undefined ? "null" : String(cells[at])))
      .join(" · ");
  }

  #later(ms) {
    if (this.#timer) return;
    this.#timer = setTimeout(() => {
      this.#timer = 0;
      this.#draw();
    }, ms);
  }

  #draw() {
    const width = Math.floor(this.plot.clientWidth);
    if (!this.#rows || width < 40) return;
    const name = this.measure >= 0 ? this.columns[this.measure].name : "rows";
    const drawn = this.kind === "bars" ? this.#drawBars(name, width) : this.#drawLines(name, width);
    if (!drawn) this.#mount("none", []);
    this.plot.classList.toggle("waiting", !drawn);
  }

  #mount(kind, parts) {
    if (this.#drawn !== kind) put(this.plot, parts);
    this.#drawn = kind;
  }

  #drawBars(name, width) {
    const { items, of } = this.#largest();
    const largest = Math.max(0, ...items.map((item) => Math.abs(item.value)));
    const format = formatter(this.columns[this.measure].type, largest);
    for (const item of items) item.text = format(item.value);
    const by = this.labelAt.map((at) => this.columns[at].name).join(", ");
    say(this.title, `${name} by ${by}`);
    const cut = of > items.length ? `The ${TOP_BARS} largest of ${count(of, "row")}.` : "";
    say(this.hint, items.length ? cut : `No row has a ${name} yet.`);
    if (!items.length) return false;
    this.#mount("bars", [this.#bars.svg]);
    this.#bars.draw(items, { width, height: this.plot.clientHeight }, this.title.textContent);
    return true;
  }

  /** The rows, or the sums by label, with the largest values, and of how many. */
  #largest() {
    const found = this.labelAt === this.keyAt ? this.#valuesOfRows() : this.#sumsByLabel();
    const kept = [];
    let of = 0;
    for (const one of found) {
      of += 1;
      const size = Math.abs(one.value);
      if (kept.length === TOP_BARS && size <= Math.abs(kept.at(-1).value)) continue;
      const at = kept.findIndex((other) => Math.abs(other.value) < size);
      kept.splice(at < 0 ? kept.length : at, 0, one);
      if (kept.length > TOP_BARS) kept.pop();
    }
    const items = kept.map(({ cells, label, value }) => ({
      label: label ?? this.#label(cells),
      value,
    }));
    items.sort((one, other) => other.value - one.value || (one.label < other.label ? -1 : 1));
    return { items, of };
  }

  *#valuesOfRows() {
    for (const { cells, gone } of this.#rows.list) {
      const value = gone ? null : numberOf(cells[this.measure]);
      if (value !== null) yield { cells, value };
    }
  }

  #sumsByLabel() {
    const sums = new Map();
    for (const { cells, value } of this.#valuesOfRows()) {
      const label = this.#label(cells);
      sums.set(label, (sums.get(label) ?? 0) + value);
    }
    return [...sums].map(([label, value]) => ({ label, value }));
  }

  #drawLines(name, width) {
    const { series, hint } = this.kind === "time" ? this.#overTime() : this.#seen();
    say(
      this.title,
      this.kind === "time"
        ? `${name} over ${this.columns[this.timeAt].name}`
        : `${this.keyAt.length ? name : "rows"}, as seen live`,
    );
    say(this.hint, hint);
    if (!series.length) return false;
    this.#mount("lines", [this.#lines.svg, this.#lines.legend]);
    const largest = Math.max(
      ...series.flatMap((one) => one.points.map(([, value]) => Math.abs(value))),
    );
    const type =
      this.kind === "seen" && !this.keyAt.length ? "BIGINT" : this.columns[this.measure].type;
    const format = largest >= 1e7 ? short : formatter(type, largest);
    this.#lines.draw(
      series,
      { width, height: this.plot.clientHeight },
      this.title.textContent,
      format,
    );
    return true;
  }

  /** What the live frames showed: the largest keys' values, or of a table without key its rows. */
  #seen() {
    const hint = "Since this page was opened; lines grow with each change.";
    if (this.#frames.length < 2) return { series: [], hint: "Lines begin with the next change." };
    if (!this.keyAt.length)
      return {
        series: [{ label: "rows", points: this.#frames.map((frame) => [frame.ms, frame.size]) }],
        hint,
      };
    const values = [...this.#frames.at(-1).cells].map(([label, cells]) => [
      label,
      numberOf(cells[this.measure]),
    ]);
    const top = values
      .filter(([, value]) => value !== null)
      .sort((one, other) => Math.abs(other[1]) - Math.abs(one[1]));
    if (!top.length)
      return {
        series: [],
        hint: `Lines are drawn of up to ${FRAME_ROWS} rows; this view has ${count(this.#rows.size, "row")}.`,
      };
    const series = top.slice(0, TOP_LINES).map(([label]) => ({
      label,
      points: this.#frames
        .map((frame) => [
          frame.ms,
          frame.cells.has(label) ? numberOf(frame.cells.get(label)[this.measure]) : null,
        ])
        .filter(([, value]) => value !== null),
    }));
    return { series, hint: top.length > TOP_LINES ? `The ${TOP_LINES} largest. ${hint}` : hint };
  }

  /** Sums by the time column, in steps that leave no more points than can be told apart. */
  #overTime() {
    const points = [];
    for (const record of this.#rows.list) {
      const ms = record.gone ? null : timeOf(record.cells[this.timeAt]);
      const value = record.gone ? null : numberOf(record.cells[this.measure]);
      if (ms !== null && value !== null) points.push([this.#seriesOf(record.cells), ms, value]);
    }
    if (!points.length) return { series: [], hint: "No row has a time and a value yet." };
    let [from, to] = [Infinity, -Infinity];
    for (const [, ms] of points) [from, to] = [Math.min(from, ms), Math.max(to, ms)];
    const step =
      STEPS_MS.find((each) => (to - from) / each <= BINS) ??
      86_400_000 * Math.ceil((to - from) / 86_400_000 / BINS);
    const sums = new Map();
    for (const [label, ms, value] of points) {
      const one = sums.get(label) ?? { label, size: 0, bins: new Map() };
      const bin = Math.floor(ms / step) * step;
      one.bins.set(bin, (one.bins.get(bin) ?? 0) + value);
      one.size += Math.abs(value);
      sums.set(label, one);
    }
    const top = [...sums.values()].sort((one, other) => other.size - one.size).slice(0, TOP_LINES);
    const series = top.map(({ label, bins }) => ({
      label,
      points: [...bins].sort((one, other) => one[0] - other[0]),
    }));
    return {
      series,
      hint: `Sums of ${stepText(step)}${sums.size > TOP_LINES ? `; the ${TOP_LINES} largest of ${sums.size}` : ""}.`,
    };
  }

  #seriesOf(cells) {
    const others = this.keyAt.filter((at) => at !== this.timeAt);
    if (!this.keyAt.includes(this.timeAt) || !others.length) return this.columns[this.measure].name;
    return others.map((at) => String(cells[at])).join(" · ");
  }
}

function stepText(ms) {
  if (ms >= 86_400_000) return ms === 86_400_000 ? "a day" : `${ms / 86_400_000} days`;
  if (ms >= 3_600_000) return ms === 3_600_000 ? "an hour" : `${ms / 3_600_000} hours`;
  if (ms >= 60_000) return ms === 60_000 ? "a minute" : `${ms / 60_000} minutes`;
  return ms >= 1000 ? (ms === 1000 ? "a second" : `${ms / 1000} seconds`) : `${ms} ms`;
}
