// The live table: any number of rows, of which only those in sight are in the document.

import { h, put, say } from "./dom.js";
import { arrive, flash } from "./flash.js";
import { count, formatter, kindOf, numberOf, whole } from "./format.js";
import { comparator } from "./rows.js";

const ROW_PX = 28;
const BEYOND = 8;
const SAMPLE = 300;
const NARROW_PX = 64;
const WIDE_PX = 420;
const RECENT_MS = 1500;
const CALM_ROWS = 30;

/**
 * Shows the records of a `Rows`. `order` is how they stand unless a header was clicked: "key", "given",
 * "newest" or "columns".
 */
export class Table {
  #rows = null;
  #visible = [];
  #elements = new Map();
  #frame = 0;
  #words = [];
  #sort = { at: -1, down: false };
  #order;
  #unsorted = true;
  #headers;
  #widths;
  #longest;
  #pen = document.createElement("canvas").getContext("2d");

  constructor(label, columns, key, order) {
    this.columns = columns;
    this.#order = order;
    this.kinds = columns.map((column) => kindOf(column.type));
    this.formats = columns.map((column) => formatter(column.type));
    this.#widths = columns.map(() => NARROW_PX);
    this.#longest = columns.map(() => 0);
    this.#headers = columns.map((column, at) =>
      this.#header(column, at, key.includes(column.name)),
    );
    this.body = h("div", { className: "grid-body", role: "rowgroup" });
    this.grid = h(
      "div",
      { className: "grid", role: "table", "aria-label": label, "aria-colcount": columns.length },
      h(
        "div",
        { className: "grid-head", role: "rowgroup" },
        h("div", { className: "grid-row", role: "row", "aria-rowindex": 1 }, this.#headers),
      ),
      this.body,
    );
    this.note = h("div", { className: "grid-note", hidden: true });
    this.element = h(
      "div",
      { className: "grid-scroll", role: "region", "aria-label": `${label}, rows`, tabIndex: 0 },
      this.grid,
      this.note,
    );
    this.element.addEventListener("scroll", () => this.#later(), { passive: true });
    this.#watch = new ResizeObserver(() => this.#later());
    this.#watch.observe(this.element);
    this.#tellSort();
  }

  #watch;
  /** Called after each drawing. */
  onDraw = () => {};
  /** What is said where there are no rows. */
  nothing = "No rows. They show here as soon as something is written.";

  close() {
    this.#watch.disconnect();
    cancelAnimationFrame(this.#frame);
  }

  /** Shows these rows, of which `counts` says what has changed, from the next frame on. */
  show(rows, counts = null) {
    const other = rows !== this.#rows;
    this.#rows = rows;
    if (other || !counts || counts.added) this.#unsorted = true;
    if (other || !counts) this.#sample();
    if (this.#sort.at >= 0) this.#unsorted = true;
    if (!other && counts?.added) this.#hold(counts.added);
    this.#calm = other || !counts || counts.added > CALM_ROWS;
    this.#later();
  }

  #calm = true;

  filter(text) {
    this.#words = text.toLowerCase().split(/\s+/).filter(Boolean);
    this.element.scrollTop = 0;
    this.#later();
  }

  /** How many rows are to be seen, and of how many. */
  get shown() {
    return {
      shown: this.#visible.length,
      of: this.#rows?.size ?? 0,
      filtered: this.#words.length > 0,
    };
  }

  /** The order as the server takes it; empty for the table's own. */
  get serverOrder() {
    if (this.#sort.at < 0) return "";
    return (this.#sort.down ? "-" : "") + this.columns[this.#sort.at].name;
  }

  /** The cells of a record as texts. */
  texts(record) {
    return record.cells.map((value, at) =>
      value === null || value === undefined ? "null" : this.formats[at](value),
    );
  }

  #header(column, at, isKey) {
    const button = h(
      "button",
      {
        type: "button",
        title: `${column.name} ${column.type}${isKey ? ", primary key" : ""}`,
        onclick: () => this.#click(at),
      },
      column.name,
      h("span", { className: "arrow", "aria-hidden": "true" }),
    );
    const kind = kindOf(column.type);
    const words = ["cell", kind === "number" ? "number" : "", isKey ? "key" : ""];
    return h(
      "div",
      { className: words.filter(Boolean).join(" "), role: "columnheader", "aria-colindex": at + 1 },
      button,
    );
  }

  #click(at) {
    const first = this.kinds[at] === "number" || this.kinds[at] === "time";
    if (this.#sort.at !== at) this.#sort = { at, down: first };
    else if (this.#sort.down === first) this.#sort = { at, down: !first };
    else this.#sort = { at: -1, down: false };
    this.#tellSort();
    this.#unsorted = true;
    this.#calm = false;
    this.#later();
  }

  #tellSort() {
    this.#headers.forEach((header, at) => {
      const here = at === this.#sort.at;
      header.setAttribute(
        "aria-sort",
        here ? (this.#sort.down ? "descending" : "ascending") : "none",
      );
      say(header.querySelector(".arrow"), here ? (this.#sort.down ? "↓" : "↑") : "");
    });
  }

  #compare() {
    const { at, down } = this.#sort;
    const turned = down ? -1 : 1;
    const own = this.#ownOrder();
    if (at < 0) return own;
    const compare = comparator(this.kinds[at]);
    return (one, other) => {
      const [a, b] = [one.cells[at], other.cells[at]];
      const empty = (a ?? null) === null || (b ?? null) === null;
      return compare(a, b) * (empty ? 1 : turned) || own(one, other);
    };
  }

  #ownOrder() {
    if (this.#order === "newest") return (one, other) => other.seq - one.seq;
    if (this.#order === "given") return (one, other) => one.seq - other.seq;
    const at =
      this.#order === "key" ? this.#rows.keyColumns : this.columns.map((_, index) => index);
    const by = at.map((index) => comparator(this.kinds[index]));
    return (one, other) => {
      for (let index = 0; index < at.length; index += 1) {
        const found = by[index](one.cells[at[index]], other.cells[at[index]]);
        if (found) return found;
      }
      return one.seq - other.seq;
    };
  }

  /** New rows above those that are read do not push them away. */
  #hold(added) {
    if (
      this.#order === "newest" &&
      this.#sort.at < 0 &&
      !this.#words.length &&
      this.element.scrollTop > ROW_PX
    ) {
      this.#push = (this.#push ?? 0) + added;
    }
  }

  #push = 0;

  #later() {
    if (this.#frame) return;
    const draw = () => {
      this.#frame = 0;
      this.#draw();
    };
    // No frames are drawn while the page is hidden, and what comes meanwhile must not pile up.
    this.#frame = document.hidden ? setTimeout(draw, 500) : requestAnimationFrame(draw);
  }

  #draw() {
    const rows = this.#rows;
    if (!rows) return;
    const fading = rows.sweep();
    if (this.#unsorted) rows.list.sort(this.#compare());
    this.#unsorted = false;
    this.#visible = this.#words.length
      ? rows.list.filter((record) => this.#matches(record))
      : rows.list;
    this.body.style.height = `${this.#visible.length * ROW_PX}px`;
    this.grid.setAttribute("aria-rowcount", this.#visible.length + 1);
    if (this.#push) {
      this.element.scrollTop += this.#push * ROW_PX;
      this.#push = 0;
    }
    this.#place();
    this.#tellEmpty(rows);
    this.onDraw();
    if (fading) this.#again();
  }

  #again() {
    clearTimeout(this.#sweeping);
    this.#sweeping = setTimeout(() => this.#later(), 250);
  }

  #sweeping = 0;

  #matches(record) {
    record.text ??= this.texts(record).join("\u0000").toLowerCase();
    return this.#words.every((word) => record.text.includes(word));
  }

  #place() {
    const height = this.element.clientHeight || 600;
    const first = Math.max(0, Math.floor(this.element.scrollTop / ROW_PX) - BEYOND);
    const end = Math.min(
      this.#visible.length,
      Math.ceil((this.element.scrollTop + height) / ROW_PX) + BEYOND,
    );
    const wanted = new Set(this.#visible.slice(first, end));
    for (const [record, element] of this.#elements) {
      if (!wanted.has(record)) {
        element.remove();
        this.#elements.delete(record);
      }
    }
    let grown = false;
    for (let at = first; at < end; at += 1) grown = this.#put(this.#visible[at], at) || grown;
    this.#arrange(first, end);
    if (grown) this.#setWidths();
  }

  /** The order of the document is that of the eye, for those who have it read to them. */
  #arrange(first, end) {
    let next = this.body.firstChild;
    for (let at = first; at < end; at += 1) {
      const element = this.#elements.get(this.#visible[at]);
      if (element === next) next = next.nextSibling;
      else this.body.insertBefore(element, next);
    }
  }

  #put(record, at) {
    let element = this.#elements.get(record);
    const isNew = element === undefined;
    if (isNew) {
      element = h(
        "div",
        { className: "grid-row", role: "row" },
        this.columns.map((_, index) =>
          h("div", { className: this.#cellClass(index), role: "cell" }),
        ),
      );
      this.#elements.set(record, element);
    }
    element.classList.toggle("moving", !isNew && !this.#calm);
    element.style.transform = `translateY(${at * ROW_PX}px)`;
    element.setAttribute("aria-rowindex", at + 2);
    element.classList.toggle("gone", record.gone !== 0);
    if (element.version === record.version && !isNew) return false;
    element.version = record.version;
    return this.#fill(element, record, isNew);
  }

  #cellClass(index) {
    return this.kinds[index] === "number"
      ? "cell number"
      : this.#rows.keyed && this.#rows.keyColumns.includes(index)
        ? "cell key"
        : "cell";
  }

  #fill(element, record, isNew) {
    const texts = this.texts(record);
    let grown = false;
    texts.forEach((text, index) => {
      const cell = element.children[index];
      const isNull = record.cells[index] === null || record.cells[index] === undefined;
      say(cell, text);
      cell.classList.toggle("null", isNull);
      if (text.length > this.#longest[index]) grown = this.#measure(index, text) || grown;
    });
    const now = performance.now();
    if (record.changed && now - record.at < RECENT_MS) {
      for (const index of record.changed) flash(element.children[index], record, index);
    } else if (isNew && !this.#calm && record.born && now - record.born < RECENT_MS)
      arrive(element);
    return grown;
  }

  #sample() {
    const records = this.#rows.list.slice(0, SAMPLE);
    this.columns.forEach((column, at) => {
      if (this.kinds[at] === "number") {
        const largest = Math.max(
          0,
          ...records.map((record) => Math.abs(numberOf(record.cells[at]) ?? 0)),
        );
        this.formats[at] = formatter(column.type, largest);
      }
    });
    // As keys and heads are written, which are wider than the rest.
    const { fontSize, fontFamily } = getComputedStyle(this.element);
    this.#pen.font = `700 ${fontSize || "13px"} ${fontFamily || "sans-serif"}`;
    this.columns.forEach((column, at) => {
      this.#longest[at] = 0;
      this.#measure(at, `${column.name}  ↓`);
    });
    for (const record of records)
      this.texts(record).forEach(
        (text, at) => text.length > this.#longest[at] && this.#measure(at, text),
      );
    this.#setWidths();
  }

  #measure(at, text) {
    this.#longest[at] = text.length;
    const wide = Math.ceil(this.#pen.measureText(text).width) + 26;
    const width = Math.min(WIDE_PX, Math.max(NARROW_PX, wide));
    if (width <= this.#widths[at]) return false;
    this.#widths[at] = width;
    return true;
  }

  #setWidths() {
    this.grid.style.setProperty(
      "--columns",
      this.#widths.map((px) => `minmax(${px}px, ${px}fr)`).join(" "),
    );
    this.grid.style.minWidth = `${this.#widths.reduce((sum, px) => sum + px, 0)}px`;
  }

  #tellEmpty(rows) {
    this.note.hidden = this.#visible.length > 0;
    if (this.note.hidden) return;
    if (this.#words.length)
      put(
        this.note,
        h("p", {}, `None of ${count(rows.size, "row")} has “${this.#words.join(" ")}”.`),
      );
    else put(this.note, h("p", {}, this.nothing));
  }
}

/** "12 of 100,000 rows". */
export function shownText({ shown, of, filtered }) {
  return filtered ? `${whole(shown)} of ${count(of, "row")}` : count(of, "row");
}
