// The widths of a table's columns, by their longest texts, within limits.

import { pen } from "../ui/dom.js";

const NARROW_PX = 64;
const WIDE_PX = 420;
const SIDES_PX = 26;

/** Columns never get narrower. */
export class ColumnWidths {
  #px;
  #longest;
  #pen = pen();

  /** @param {number} columns */
  constructor(columns) {
    this.#px = Array.from({ length: columns }, () => NARROW_PX);
    this.#longest = this.#px.map(() => 0);
  }

  /**
   * Restarts with the headers, in the font of `element`.
   * @param {Element} element
   * @param {string[]} heads
   */
  restart(element, heads) {
    const { fontSize, fontFamily } = getComputedStyle(element);
    // Keys and headers are bold, which is wider.
    this.#pen.font = `700 ${fontSize || "13px"} ${fontFamily || "sans-serif"}`;
    heads.forEach((text, at) => this.#measure(at, text));
  }

  /**
   * Widens a column for a text, if needed; returns whether it did.
   * @param {number} at
   * @param {string} text
   */
  take(at, text) {
    return text.length > this.#longest[at] && this.#measure(at, text);
  }

  /**
   * Sets the widths in the style of a table.
   * @param {HTMLElement} grid
   */
  apply(grid) {
    const columns = this.#px.map((px) => `minmax(${px}px, ${px}fr)`).join(" ");
    grid.style.setProperty("--columns", columns);
    grid.style.minWidth = `${this.#px.reduce((sum, px) => sum + px, 0)}px`;
  }

  /**
   * The columns between two positions of a table that is `width` wide: the first, and that after the
   * last.
   * @param {number} left
   * @param {number} right
   * @param {number} width
   * @returns {[number, number]}
   */
  between(left, right, width) {
    // Columns that do not fill the table are stretched alike.
    const stretch = Math.max(1, width / this.#px.reduce((sum, px) => sum + px, 0));
    let [first, end, x] = [0, 0, 0];
    this.#px.forEach((px, at) => {
      if (x < right) end = at + 1;
      x += px * stretch;
      if (x <= left) first = at + 1;
    });
    return [Math.min(first, end), end];
  }

  /**
   * @param {number} at
   * @param {string} text
   */
  #measure(at, text) {
    this.#longest[at] = text.length;
    const wide = Math.ceil(this.#pen.measureText(text).width) + SIDES_PX;
    const width = Math.min(WIDE_PX, Math.max(NARROW_PX, wide));
    if (width <= this.#px[at]) return false;
    this.#px[at] = width;
    return true;
  }
}
