// The live table; only the visible rows, and of many columns the visible ones, are in the document.

import { kindOf } from "../format/column-values.js";
import { count, whole } from "../format/numbers.js";
import { columnOrder, ownOrder } from "../rows/sort-order.js";
import { h, put, say } from "../ui/dom.js";
import { skeleton } from "../ui/placeholder.js";
import { CellTexts } from "./cell-texts.js";
import { arrive, flash } from "./change-animations.js";
import { ColumnWidths } from "./column-widths.js";
import { RowFilter } from "./row-filter.js";
import { inspectRow } from "./row-inspector.js";
import { SortableHeader } from "./sortable-header.js";

/** @typedef {import("../rows/sort-order.js").Order} Order */
/** @typedef {import("../server/responses.d.ts").TypedColumn} TypedColumn */
/** @typedef {import("../rows/row-store.js").RowRecord} RowRecord */
/** @typedef {import("../rows/row-store.js").RowStore} RowStore */

/**
 * The elements of a row by their columns, and the version of the record that they show.
 * @typedef {{ element: HTMLElement, cells: Map<number, HTMLElement>, version: number }} ShownRow
 */

const ROW_PX = 28;
const BEYOND = 8;
const SAMPLE = 300;
const SAMPLE_CELLS = 12_000;
const FEW_COLUMNS = 30;
const BEYOND_PX = 300;
const RECENT_MS = 1500;
const CALM_ROWS = 30;
const HIDDEN_MS = 500;
const SWEEP_MS = 250;

/** Shows the records of a `RowStore`; `order` applies unless a header was clicked. */
export class VirtualTable {
  /** @type {RowStore | null} */
  #rows = null;
  /** @type {RowRecord[]} */
  #visible = [];
  /** @type {Map<RowRecord, ShownRow>} */
  #elements = new Map();
  #frame = 0;
  #sweeping = 0;
  #columns;
  #order;
  #kinds;
  #texts;
  #filter;
  #head;
  #widths;
  #watch;
  #unsorted = true;
  #calm = true;
  #push = 0;
  /**
   * The columns in the document: the first, and that after the last.
   * @type {[number, number]}
   */
  #range = [0, 0];
  #body = h("div", { className: "grid-body", role: "rowgroup" });
  #note = h("div", { className: "grid-note" }, skeleton(9));
  /** Called after each draw. */
  onDraw = () => {};
  /** Called after the user has changed the order. */
  onSort = () => {};
  /** The text of an empty table. */
  nothing = "No rows.";

  /**
   * @param {string} label
   * @param {TypedColumn[]} columns
   * @param {string[]} key
   * @param {Order} order
   */
  constructor(label, columns, key, order) {
    this.#columns = columns;
    this.#order = order;
    this.#kinds = columns.map((column) => kindOf(column.type));
    this.#texts = new CellTexts(columns, key);
    this.#filter = new RowFilter(this.#texts);
    this.#widths = new ColumnWidths(columns.length);
    this.#head = new SortableHeader(columns, key, () => this.#sorted());
    this.grid = h(
      "div",
      { className: "grid", role: "table", "aria-label": label, "aria-colcount": columns.length },
      this.#head.element,
      this.#body,
    );
    this.element = h(
      "div",
      { className: "grid-scroll", role: "region", "aria-label": `${label}, rows`, tabIndex: 0 },
      this.grid,
      this.#note,
    );
    this.element.addEventListener("scroll", () => this.#later(), { passive: true });
    this.element.addEventListener("click", ({ target }) => this.#inspect(target));
    this.element.addEventListener("keydown", (event) => {
      // By keyboard, the first row in sight: the arrows scroll to others.
      if (event.key !== "Enter" || event.target !== this.element) return;
      // The key would also press the button of the dialog that has the focus next.
      event.preventDefault();
      this.#inspectFirst();
    });
    this.#watch = new ResizeObserver(() => this.#later());
    this.#watch.observe(this.element);
  }

  close() {
    this.#watch.disconnect();
    cancelAnimationFrame(this.#frame);
  }

  /**
   * Shows rows from the next frame on; `counts` are the changes since the last call, null for all.
   * @param {RowStore} rows
   * @param {{ added: number } | null} [counts]
   */
  show(rows, counts = null) {
    const other = rows !== this.#rows;
    this.#rows = rows;
    if (other || !counts || counts.added) this.#unsorted = true;
    if (other || !counts) this.#sample(rows);
    if (this.#head.sort.at >= 0) this.#unsorted = true;
    if (!other && counts?.added) this.#hold(counts.added);
    this.#calm = other || !counts || counts.added > CALM_ROWS;
    this.#later();
  }

  /**
   * Shows the row of a cell, unless its text is being selected.
   * @param {EventTarget | null} target
   */
  #inspect(target) {
    const cell = target instanceof Element ? target.closest(".grid-body .cell") : null;
    if (!cell || getSelection()?.type === "Range") return;
    for (const [record, { element }] of this.#elements)
      if (element.contains(cell))
        inspectRow(this.#columns, record.cells, Number(cell.getAttribute("aria-colindex")) - 1);
  }

  #inspectFirst() {
    const record = this.#visible[Math.ceil(this.element.scrollTop / ROW_PX)];
    if (record) inspectRow(this.#columns, record.cells, 0);
  }

  /** @param {string} text */
  filter(text) {
    this.#filter.set(text);
    this.element.scrollTop = 0;
    this.#later();
  }

  /** The number of rows that the filter matches: "12 of 100,000 rows". */
  get shown() {
    const of = count(this.#rows?.size ?? 0, "row");
    return this.#filter.words.length ? `${whole(this.#visible.length)} of ${of}` : of;
  }

  /** The parameter `order` of the server; empty for the table's own order. */
  get serverOrder() {
    return this.#head.serverOrder;
  }

  /**
   * Sorts by a column, as a click on its header does.
   * @param {number} at
   * @param {boolean} down
   */
  sort(at, down) {
    this.#head.setSort({ at, down });
  }

  #sorted() {
    this.#unsorted = true;
    this.#calm = false;
    this.#later();
    this.onSort();
  }

  /** @param {RowStore} rows */
  #compare(rows) {
    const { sort } = this.#head;
    const own = ownOrder(this.#order, this.#kinds, rows.keyColumns);
    return sort.at < 0 ? own : columnOrder(sort, this.#kinds[sort.at], own);
  }

  /**
   * Keeps the scroll position when new rows are added above.
   * @param {number} added
   */
  #hold(added) {
    if (
      this.#order === "newest" &&
      this.#head.sort.at < 0 &&
      !this.#filter.words.length &&
      this.element.scrollTop > ROW_PX
    ) {
      this.#push += added;
    }
  }

  #later() {
    if (this.#frame) return;
    const draw = () => {
      this.#frame = 0;
      this.#draw();
    };
    // A hidden page gets no animation frames, but changes must not pile up.
    this.#frame = document.hidden ? setTimeout(draw, HIDDEN_MS) : requestAnimationFrame(draw);
  }

  #draw() {
    const rows = this.#rows;
    if (!rows) return;
    const fading = rows.sweep();
    if (this.#unsorted) rows.list.sort(this.#compare(rows));
    this.#unsorted = false;
    this.#visible = this.#filter.apply(rows.list);
    this.#body.style.height = `${this.#visible.length * ROW_PX}px`;
    this.grid.setAttribute("aria-rowcount", String(this.#visible.length + 1));
    if (this.#push) {
      this.element.scrollTop += this.#push * ROW_PX;
      this.#push = 0;
    }
    this.#place(rows);
    this.#showEmpty(rows);
    this.onDraw();
    if (fading) this.#again();
  }

  #again() {
    clearTimeout(this.#sweeping);
    this.#sweeping = setTimeout(() => this.#later(), SWEEP_MS);
  }

  /** @param {RowStore} rows */
  #place(rows) {
    const height = this.element.clientHeight || 600;
    const first = Math.max(0, Math.floor(this.element.scrollTop / ROW_PX) - BEYOND);
    const end = Math.ceil((this.element.scrollTop + height) / ROW_PX) + BEYOND;
    const wanted = this.#visible.slice(first, end);
    const [from, to] = this.#range;
    this.#range = this.#columnsInSight();
    const other = from !== this.#range[0] || to !== this.#range[1];
    const kept = new Set(wanted);
    for (const [record, { element }] of this.#elements) {
      if (!kept.has(record)) {
        element.remove();
        this.#elements.delete(record);
      }
    }
    let grown = false;
    const elements = wanted.map((record, at) => {
      const known = this.#elements.get(record);
      const shown = known ?? this.#make(record);
      if (!known || other) grown = this.#cut(shown, record, rows) || grown;
      grown = this.#put(shown, record, first + at, !known) || grown;
      return shown.element;
    });
    this.#arrange(elements);
    if (grown) this.#widths.apply(this.grid);
  }

  /**
   * Puts the elements in their visual order, which screen readers follow.
   * @param {HTMLElement[]} elements
   */
  #arrange(elements) {
    let next = this.#body.firstChild;
    for (const element of elements) {
      if (element === next) next = next.nextSibling;
      else this.#body.insertBefore(element, next);
    }
  }

  /**
   * All columns if they are few, else those in sight.
   * @returns {[number, number]}
   */
  #columnsInSight() {
    if (this.#columns.length <= FEW_COLUMNS) return [0, this.#columns.length];
    const { scrollLeft, clientWidth } = this.element;
    const [left, right] = [scrollLeft - BEYOND_PX, scrollLeft + clientWidth + BEYOND_PX];
    return this.#widths.between(left, right, this.grid.clientWidth);
  }

  /** @param {RowRecord} record */
  #make(record) {
    const element = h("div", { className: "grid-row", role: "row" });
    /** @type {ShownRow} */
    const shown = { element, cells: new Map(), version: record.version };
    this.#elements.set(record, shown);
    return shown;
  }

  /**
   * Removes the cells of a row that are out of sight, and makes those that have come into sight;
   * returns whether a column has to be wider.
   * @param {ShownRow} shown
   * @param {RowRecord} record
   * @param {RowStore} rows
   */
  #cut({ element, cells }, record, rows) {
    const [from, to] = this.#range;
    for (const [index, cell] of cells) {
      if (index >= from && index < to) continue;
      cell.remove();
      cells.delete(index);
    }
    const after = cells.get(Math.min(...cells.keys())) ?? null;
    let grown = false;
    for (let index = from; index < to; index += 1) {
      if (cells.has(index)) continue;
      const isKey = rows.keyed && rows.keyColumns.includes(index);
      const isNumber = this.#kinds[index] === "number";
      const className = isNumber ? "cell number" : isKey ? "cell key" : "cell";
      const cell = h("div", { className, role: "cell", "aria-colindex": index + 1 });
      cell.style.gridColumn = String(index + 1);
      grown = this.#say(cell, record, index) || grown;
      // In their order, which screen readers follow.
      const isBefore = after && index < Number(after.getAttribute("aria-colindex"));
      element.insertBefore(cell, isBefore ? after : null);
      cells.set(index, cell);
    }
    return grown;
  }

  /**
   * Shows the value of a cell; returns whether its column has to be wider.
   * @param {HTMLElement} cell
   * @param {RowRecord} record
   * @param {number} index
   */
  #say(cell, record, index) {
    const text = this.#texts.at(record, index);
    say(cell, text);
    cell.classList.toggle("null", (record.cells[index] ?? null) === null);
    return this.#widths.take(index, text);
  }

  /**
   * @param {ShownRow} shown
   * @param {RowRecord} record
   * @param {number} at
   * @param {boolean} isNew
   */
  #put(shown, record, at, isNew) {
    const { element } = shown;
    element.classList.toggle("moving", !isNew && !this.#calm);
    element.style.transform = `translateY(${at * ROW_PX}px)`;
    element.setAttribute("aria-rowindex", String(at + 2));
    element.classList.toggle("gone", record.gone !== 0);
    if (shown.version === record.version && !isNew) return false;
    shown.version = record.version;
    return this.#fill(shown, record, isNew);
  }

  /**
   * @param {ShownRow} shown
   * @param {RowRecord} record
   * @param {boolean} isNew
   */
  #fill({ element, cells }, record, isNew) {
    let grown = false;
    for (const [index, cell] of cells) grown = this.#say(cell, record, index) || grown;
    const now = performance.now();
    if (record.changed && now - record.at < RECENT_MS) {
      for (const index of record.changed) {
        const cell = cells.get(index);
        if (cell) flash(cell, record, index);
      }
    } else if (isNew && !this.#calm && record.born && now - record.born < RECENT_MS)
      arrive(element);
    return grown;
  }

  /** @param {RowStore} rows */
  #sample(rows) {
    const most = Math.ceil(SAMPLE_CELLS / this.#columns.length);
    const records = rows.list.slice(0, Math.min(SAMPLE, most));
    this.#texts.fit(records);
    const heads = this.#columns.map((column) => `${column.name}  ↓`);
    this.#widths.restart(this.element, heads);
    for (const record of records)
      this.#texts.of(record).forEach((text, at) => this.#widths.take(at, text));
    this.#widths.apply(this.grid);
  }

  /** @param {RowStore} rows */
  #showEmpty(rows) {
    this.#note.hidden = this.#visible.length > 0;
    if (this.#note.hidden) return;
    const { words } = this.#filter;
    const none = `None of ${count(rows.size, "row")} matches “${words.join(" ")}”.`;
    put(this.#note, h("p", {}, words.length ? none : this.nothing));
  }
}
