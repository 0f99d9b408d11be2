// Lines over time, with a cursor line whose values the legend shows.

import { short } from "../format/numbers.js";
import { clock, dateAndTime } from "../format/times.js";
import { h, put, s, say, setAttributes } from "../ui/dom.js";
import { niceTicks } from "./axis-ticks.js";

/** @typedef {[ms: number, value: number]} Point */
/** @typedef {{ label: string, points: Point[] }} Series at least one point */
/** @typedef {(number: number) => number} Coordinate */

const MIN_PX = 220;
const MAX_PX = 420;
const LEGEND_PX = 80;
const EDGE = { left: 56, right: 14, top: 12, bottom: 26 };
const DAY_MS = 86_400_000;

export class LineChart {
  /** @type {Series[]} */
  #series = [];
  #format = short;
  /** @type {{ x: Coordinate, from: number, to: number, width: number } | null} */
  #scale = null;
  /** @type {number | null} */
  #at = null;
  #height = MIN_PX;
  #rule = s("line", { class: "rule", y1: EDGE.top });
  svg = s("svg", { class: "lines", role: "img" });
  legend = h("ul", { className: "legend" });

  constructor() {
    this.svg.addEventListener("pointermove", (event) => this.#point(event.offsetX));
    this.svg.addEventListener("pointerleave", () => this.#point(null));
  }

  /**
   * Draws at least one series; `format` formats its values. Lines to points after `openFrom` are
   * dashed.
   * @param {Series[]} series
   * @param {{ width: number, height: number }} size
   * @param {string} title
   * @param {(value: number) => string} format
   * @param {number} openFrom
   */
  draw(series, { width, height }, title, format, openFrom) {
    this.#height = Math.min(MAX_PX, Math.max(MIN_PX, height - LEGEND_PX));
    this.#series = series;
    this.#format = format;
    const points = series.flatMap((one) => one.points);
    const times = points.map(([at]) => at);
    const values = points.map(([, value]) => value);
    const [from, to] = [Math.min(...times), Math.max(...times)];
    const ticks = niceTicks(Math.min(...values), Math.max(...values), 4);
    const [low, high] = [ticks[0], lastOf(ticks)];
    /** @param {number} ms */
    const x = (ms) =>
      EDGE.left + ((ms - from) / (to - from || 1)) * (width - EDGE.left - EDGE.right);
    /** @param {number} value */
    const y = (value) =>
      this.#height -
      EDGE.bottom -
      ((value - low) / (high - low || 1)) * (this.#height - EDGE.top - EDGE.bottom);
    this.#scale = { x, from, to, width };
    const spoken = series.map((one) => `${one.label} ${format(lastOf(one.points)[1])}`);
    setAttributes(this.svg, {
      viewBox: `0 0 ${width} ${this.#height}`,
      width,
      height: this.#height,
      "aria-label": `${title}: ${spoken.join(", ")}`,
    });
    setAttributes(this.#rule, { y2: this.#height - EDGE.bottom });
    put(
      this.svg,
      this.#grid(ticks, y, width),
      this.#times(from, to, x),
      series.map((one, index) => line(one.points, index, x, y, openFrom)),
      this.#rule,
    );
    this.#update();
  }

  /**
   * @param {number[]} ticks
   * @param {Coordinate} y
   * @param {number} width
   */
  #grid(ticks, y, width) {
    return ticks.map((tick) =>
      s(
        "g",
        {},
        s("line", {
          class: tick === 0 ? "axis" : "gridline",
          x1: EDGE.left,
          x2: width - EDGE.right,
          y1: y(tick),
          y2: y(tick),
        }),
        s(
          "text",
          {
            class: "tick",
            x: EDGE.left - 8,
            y: y(tick),
            "text-anchor": "end",
            "dominant-baseline": "central",
          },
          short(tick),
        ),
      ),
    );
  }

  /**
   * @param {number} from
   * @param {number} to
   * @param {Coordinate} x
   */
  #times(from, to, x) {
    const text = to - from > 2 * DAY_MS ? day : to - from > DAY_MS / 2 ? dateAndTime : clock;
    const marks = from === to ? [from] : [from, from + (to - from) / 2, to];
    const anchors = ["start", "middle", "end"];
    return marks.map((ms, index) =>
      s(
        "text",
        { class: "tick", x: x(ms), y: this.#height - 8, "text-anchor": anchors[index] },
        text(ms),
      ),
    );
  }

  /** @param {number | null} offset */
  #point(offset) {
    if (!this.#scale) return;
    const { x, from, to, width } = this.#scale;
    const share = offset === null ? null : (offset - EDGE.left) / (width - EDGE.left - EDGE.right);
    this.#at = share === null || share < 0 || share > 1 ? null : from + share * (to - from);
    this.#rule.style.display = this.#at === null ? "none" : "";
    if (this.#at !== null) setAttributes(this.#rule, { x1: x(this.#at), x2: x(this.#at) });
    this.#update();
  }

  #update() {
    const at = this.#at;
    if (at === null) this.#rule.style.display = "none";
    const texts = this.#series.map(({ label, points }) => {
      const found =
        at === null ? lastOf(points) : (points.findLast(([ms]) => ms <= at) ?? points[0]);
      return [label, this.#format(found[1])];
    });
    if (this.legend.children.length !== texts.length) {
      put(
        this.legend,
        texts.map((_, index) =>
          h("li", {}, h("i", { className: `swatch of-${index}` }), h("span", {}), h("b", {})),
        ),
      );
    }
    texts.forEach(([label, value], index) => {
      const [, name, number] = this.legend.children[index].children;
      say(name, label);
      say(number, value);
    });
  }
}

/**
 * @param {Point[]} points
 * @param {number} index
 * @param {Coordinate} x
 * @param {Coordinate} y
 * @param {number} openFrom
 */
function line(points, index, x, y, openFrom) {
  if (points.length === 1)
    return s("circle", {
      class: `dot of-${index}`,
      cx: x(points[0][0]),
      cy: y(points[0][1]),
      r: 3,
    });
  const isOpen = lastOf(points)[0] > openFrom;
  /** @param {Point[]} some */
  const path = (some) =>
    some
      .map(([ms, value], at) => `${at ? "L" : "M"}${x(ms).toFixed(1)} ${y(value).toFixed(1)}`)
      .join("");
  return s(
    "g",
    {},
    s("path", { class: `line of-${index}`, d: path(isOpen ? points.slice(0, -1) : points) }),
    isOpen ? s("path", { class: `line open of-${index}`, d: path(points.slice(-2)) }) : null,
  );
}

/** @param {number} ms */
function day(ms) {
  return new Date(ms).toISOString().slice(0, 10);
}

/**
 * @template T
 * @param {T[]} list which is not empty
 */
function lastOf(list) {
  return list[list.length - 1];
}
