// Horizontal bars by label, animated; negative values extend to the left.

import { pen, s, say, setAttributes } from "../ui/dom.js";

/** @typedef {{ label: string, value: number, text: string }} Item */
/** @typedef {{ group: SVGElement, rect: SVGElement, label: SVGElement, value: SVGElement }} Bar */

/**
 * The layout: `left` is the start of the bars, `at` the x of a value, `step` the distance of bars.
 * `below`: some values are negative.
 * @typedef {Object} Scale
 * @property {number} left
 * @property {(value: number) => number} at
 * @property {number} step
 * @property {number} width
 * @property {boolean} below
 */

const MIN_PX = 26;
const MAX_PX = 40;
const GAP_SHARE = 0.28;
const LABEL_SHARE = 0.32;
const GONE_MS = 400;
const READ_ITEMS = 12;

export class BarChart {
  /** @type {Map<string, Bar>} */
  #bars = new Map();
  #pen = pen();
  #zero = s("line", { class: "axis", y1: 0 });
  svg = s("svg", { class: "bars", role: "img" }, this.#zero);

  /**
   * Draws items from top to bottom; the result is taller than `size` if they do not fit.
   * @param {Item[]} items
   * @param {{ width: number, height: number }} size
   * @param {string} title
   */
  draw(items, { width, height }, title) {
    const scale = this.#scale(items, width, height);
    const all = items.length * scale.step + 2;
    const spoken = items.slice(0, READ_ITEMS).map((item) => `${item.label} ${item.text}`);
    setAttributes(this.svg, {
      viewBox: `0 0 ${width} ${all}`,
      width,
      height: all,
      "aria-label": `${title}: ${spoken.join(", ")}`,
    });
    /** @type {Set<string>} */
    const seen = new Set();
    items.forEach((item, index) => {
      seen.add(item.label);
      const bar = this.#bars.get(item.label) ?? this.#make(item, index, scale);
      this.#shape(bar, item, index, scale);
    });
    this.#leave(seen);
    this.#axis(scale, all);
  }

  /**
   * @param {Item[]} items
   * @param {number} width
   * @param {number} height
   * @returns {Scale}
   */
  #scale(items, width, height) {
    const font = getComputedStyle(this.svg).fontFamily || "sans-serif";
    /** @param {string[]} texts */
    const wide = (texts) => Math.max(0, ...texts.map((text) => this.#pen.measureText(text).width));
    this.#pen.font = `600 13px ${font}`;
    const right = Math.ceil(wide(items.map((item) => item.text))) + 14;
    this.#pen.font = `13px ${font}`;
    const labels = Math.ceil(wide(items.map((item) => item.label))) + 12;
    const left = Math.min(Math.round(width * LABEL_SHARE), labels);
    const least = Math.min(0, ...items.map((item) => item.value));
    const most = Math.max(0, ...items.map((item) => item.value));
    const room = Math.max(20, width - left - right);
    /** @param {number} value */
    const at = (value) => left + ((value - least) / (most - least || 1)) * room;
    const step = Math.min(MAX_PX, Math.max(MIN_PX, Math.floor((height - 2) / items.length)));
    return { left, at, step, width, below: least < 0 };
  }

  /**
   * @param {Item} item
   * @param {number} index
   * @param {Scale} scale
   */
  #make(item, index, { at, step }) {
    const middle = { "dominant-baseline": "central", "text-anchor": "end" };
    const bar = {
      group: s("g", { class: "bar" }),
      rect: s("rect", { rx: 3 }),
      label: s("text", { class: "label", ...middle }),
      value: s("text", { class: "value", ...middle }),
    };
    bar.group.append(bar.rect, bar.label, bar.value);
    bar.rect.style.setProperty("x", `${at(0)}px`);
    bar.rect.style.setProperty("width", "0px");
    bar.group.style.transform = `translateY(${index * step}px)`;
    this.svg.append(bar.group);
    // Reading the layout commits the first width, from which the bar grows.
    bar.group.getBoundingClientRect();
    this.#bars.set(item.label, bar);
    return bar;
  }

  /**
   * @param {Bar} bar
   * @param {Item} item
   * @param {number} index
   * @param {Scale} scale
   */
  #shape({ group, rect, label, value }, item, index, { left, at, step, width }) {
    const gap = Math.round(step * GAP_SHARE);
    const [zero, end] = [at(0), at(item.value)];
    group.style.transform = `translateY(${index * step}px)`;
    setAttributes(rect, { y: gap / 2, height: step - gap });
    rect.style.setProperty("x", `${Math.min(zero, end)}px`);
    rect.style.setProperty("width", `${Math.max(item.value ? 1.5 : 0, Math.abs(end - zero))}px`);
    rect.classList.toggle("negative", item.value < 0);
    setAttributes(label, { x: left - 10, y: step / 2 });
    say(label, this.#cut(item.label, left - 12));
    setAttributes(value, { x: width - 1, y: step / 2 });
    say(value, item.text);
  }

  /**
   * @param {string} text
   * @param {number} room
   */
  #cut(text, room) {
    if (this.#pen.measureText(text).width <= room) return text;
    let kept = text;
    while (kept.length > 1 && this.#pen.measureText(`${kept}…`).width > room) {
      kept = kept.slice(0, -1);
    }
    return `${kept}…`;
  }

  /** @param {Set<string>} seen */
  #leave(seen) {
    for (const [label, { group }] of this.#bars) {
      if (seen.has(label)) continue;
      this.#bars.delete(label);
      group.classList.add("gone");
      setTimeout(() => group.remove(), GONE_MS);
    }
  }

  /**
   * @param {Scale} scale
   * @param {number} height
   */
  #axis({ at, below }, height) {
    this.#zero.style.display = below ? "" : "none";
    setAttributes(this.#zero, { x1: at(0), x2: at(0), y2: height });
  }
}
