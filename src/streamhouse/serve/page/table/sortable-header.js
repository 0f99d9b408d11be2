// The header of a table, which sorts by a column on click.

import { kindOf } from "../format/column-values.js";
import { h, say } from "../ui/dom.js";

/** @typedef {import("../rows/sort-order.js").Sort} Sort */
/** @typedef {import("../server/responses.d.ts").TypedColumn} TypedColumn */

export class SortableHeader {
  #columns;
  #changed;
  #cells;
  /** @type {Sort} */
  #sort = { at: -1, down: false };

  /**
   * `changed` is called after a click has changed the order.
   * @param {TypedColumn[]} columns
   * @param {string[]} key
   * @param {() => void} changed
   */
  constructor(columns, key, changed) {
    this.#columns = columns;
    this.#changed = changed;
    this.#cells = columns.map((column, at) => this.#cell(column, at, key.includes(column.name)));
    this.element = h(
      "div",
      { className: "grid-head", role: "rowgroup" },
      h(
        "div",
        { className: "grid-row", role: "row", "aria-rowindex": 1 },
        this.#cells.map((cell) => cell.element),
      ),
    );
    this.#update();
  }

  get sort() {
    return this.#sort;
  }

  /** The parameter `order` of the server; empty for the table's own order. */
  get serverOrder() {
    if (this.#sort.at < 0) return "";
    return (this.#sort.down ? "-" : "") + this.#columns[this.#sort.at].name;
  }

  /**
   * @param {TypedColumn} column
   * @param {number} at
   * @param {boolean} isKey
   */
  #cell(column, at, isKey) {
    const arrow = h("span", { className: "arrow", "aria-hidden": "true" });
    const button = h(
      "button",
      {
        type: "button",
        title: `${column.name} ${column.type}${isKey ? ", primary key" : ""}`,
        onclick: () => this.#click(at),
      },
      column.name,
      arrow,
    );
    const words = ["cell", kindOf(column.type) === "number" ? "number" : "", isKey ? "key" : ""];
    const element = h(
      "div",
      { className: words.filter(Boolean).join(" "), role: "columnheader", "aria-colindex": at + 1 },
      button,
    );
    return { element, arrow };
  }

  /** @param {number} at */
  #click(at) {
    const first = ["number", "time"].includes(kindOf(this.#columns[at].type));
    if (this.#sort.at !== at) this.setSort({ at, down: first });
    else if (this.#sort.down === first) this.setSort({ at, down: !first });
    else this.setSort({ at: -1, down: false });
  }

  /** @param {Sort} sort */
  setSort(sort) {
    this.#sort = sort;
    this.#update();
    this.#changed();
  }

  #update() {
    this.#cells.forEach(({ element, arrow }, at) => {
      const [order, sign] =
        at !== this.#sort.at
          ? ["none", ""]
          : this.#sort.down
            ? ["descending", "↓"]
            : ["ascending", "↑"];
      element.setAttribute("aria-sort", order);
      say(arrow, sign);
    });
  }
}
