// The rows of one view by key, and what the last change did to each.

import { streamNames } from "../server/stream-columns.js";
import { keyOf, same } from "./row-key.js";

/** @typedef {import("../server/responses.d.ts").Cell} Cell */
/** @typedef {import("../server/responses.d.ts").Row} Row */
/** @typedef {import("../server/stream-columns.js").RowsEvent} RowsEvent */
/** @typedef {import("../server/responses.d.ts").TypedColumn} TypedColumn */

/**
 * A row of a view. Times are values of `performance.now()`.
 * @typedef {Object} RowRecord
 * @property {Cell[]} cells
 * @property {Cell[] | null} before the cells before the last change
 * @property {number} seq the order of arrival
 * @property {number} born when it was added; 0 if it is not marked as new
 * @property {number} gone when it was removed; 0 while it is there, -1 if it does not fade out
 * @property {number[] | null} changed the indexes of the cells that the last change set
 * @property {number} at when `changed` was set
 * @property {number} version increases with each change of the row
 * @property {string | null} text the text that the filter searches; null until it is needed
 */

/** @typedef {{ added: number, changed: number, removed: number }} Counts */

const FADE_MS = 700;
const MANY = 400;

/**
 * All rows of a view. A view without primary key is a multiset: its key consists of all columns and
 * a number among equal rows.
 */
export class RowStore {
  /** @type {Map<string, RowRecord>} */
  #byKey = new Map();
  /** @type {Map<string, number>} */
  #equals = new Map();
  #keyAt;
  #names;
  #streamNames;
  #seq = 0;
  #fading = 0;
  /**
   * All records, including those that fade out.
   * @type {RowRecord[]}
   */
  list = [];
  size = 0;
  /** Increases with each event. */
  version = 0;

  /**
   * @param {TypedColumn[]} columns
   * @param {string[]} key
   */
  constructor(columns, key) {
    this.#names = columns.map((column) => column.name);
    this.#streamNames = streamNames(this.#names);
    const at = key.map((name) => this.#names.indexOf(name));
    this.keyed = at.length > 0 && !at.includes(-1);
    this.#keyAt = this.keyed ? at : this.#names.map((_, index) => index);
  }

  get keyColumns() {
    return this.#keyAt;
  }

  /**
   * Applies an event and counts its changes; the first one marks no cells.
   * @param {RowsEvent} event
   */
  take(event) {
    const names = event.plain ? this.#names : this.#streamNames;
    this.version += 1;
    const now = performance.now();
    if (event.type === "snapshot") return this.#replace(event.rows, names, this.version === 1, now);
    return this.#apply(event.rows, names, now);
  }

  /** Drops the rows that have faded out; returns whether others are still fading. */
  sweep() {
    if (this.#fading) {
      const now = performance.now();
      const before = this.list.length;
      this.list = this.list.filter((record) => !record.gone || now - record.gone < FADE_MS);
      this.#fading -= before - this.list.length;
    }
    return this.#fading > 0;
  }

  /**
   * @param {Row[]} rows
   * @param {string[]} names
   * @param {number} now
   */
  #apply(rows, names, now) {
    const counts = { added: 0, changed: 0, removed: 0 };
    const fade = rows.length <= MANY;
    /** @type {RowRecord | null | undefined} */
    let before = null;
    for (const row of rows) {
      const cells = names.map((name) => row[name]);
      const kind = row.rowkind;
      if (kind === "-U") {
        before = this.keyed ? null : this.#remove(cells);
      } else if (kind === "-D") {
        const record = this.#remove(cells);
        if (record) this.#drop(record, fade ? now : 0, counts);
      } else {
        const record = this.keyed ? this.#byKey.get(keyOf(cells, this.#keyAt)) : before;
        before = null;
        if (record) this.#set(record, cells, now, counts);
        else this.#add(cells, now, counts);
      }
    }
    if (!fade) this.list = this.list.filter((record) => record.gone !== -1);
    return counts;
  }

  /**
   * @param {Row[]} rows
   * @param {string[]} names
   * @param {boolean} quiet
   * @param {number} now
   */
  #replace(rows, names, quiet, now) {
    const counts = { added: 0, changed: 0, removed: 0 };
    const old = this.#byKey;
    this.#byKey = new Map();
    this.#equals = new Map();
    /** @type {RowRecord[]} */
    const list = [];
    for (const row of rows) {
      const cells = names.map((name) => row[name]);
      const key = this.#newKey(cells);
      const record = old.get(key);
      if (record && !record.gone) {
        old.delete(key);
        this.#byKey.set(key, record);
        this.#assign(record, cells, quiet ? 0 : now, counts);
        record.seq = ++this.#seq;
        list.push(record);
      } else {
        list.push(this.#record(key, cells, quiet ? 0 : now));
        counts.added += 1;
      }
    }
    this.list = list;
    if (!quiet && old.size <= MANY) {
      for (const record of old.values()) {
        record.gone = now;
        this.#fading += 1;
        this.list.push(record);
      }
    }
    counts.removed = old.size;
    this.size = this.#byKey.size;
    return counts;
  }

  /**
   * @param {Cell[]} cells
   * @param {number} now
   * @param {Counts} counts
   */
  #add(cells, now, counts) {
    this.list.push(this.#record(this.#newKey(cells), cells, now));
    counts.added += 1;
    this.size += 1;
  }

  /**
   * @param {string} key
   * @param {Cell[]} cells
   * @param {number} born
   */
  #record(key, cells, born) {
    /** @type {RowRecord} */
    const record = {
      cells,
      before: null,
      seq: ++this.#seq,
      born,
      gone: 0,
      changed: null,
      at: 0,
      version: 0,
      text: null,
    };
    this.#byKey.set(key, record);
    return record;
  }

  /**
   * @param {RowRecord} record
   * @param {Cell[]} cells
   * @param {number} now
   * @param {Counts} counts
   */
  #set(record, cells, now, counts) {
    if (!this.keyed) {
      this.#byKey.set(this.#newKey(cells), record);
      this.size += 1;
    }
    this.#assign(record, cells, now, counts);
  }

  /**
   * @param {RowRecord} record
   * @param {Cell[]} cells
   * @param {number} now 0 if the change is not marked
   * @param {Counts} counts
   */
  #assign(record, cells, now, counts) {
    /** @type {number[]} */
    const changed = [];
    cells.forEach((value, index) => {
      if (!same(value, record.cells[index])) changed.push(index);
    });
    if (!changed.length) return;
    record.before = record.cells;
    record.cells = cells;
    record.text = null;
    record.version += 1;
    if (now) {
      record.changed = changed;
      record.at = now;
    }
    counts.changed += 1;
  }

  /**
   * Removes a row from the index and returns its record, which stays in the list.
   * @param {Cell[]} cells
   */
  #remove(cells) {
    const bare = keyOf(cells, this.#keyAt);
    let key = bare;
    if (!this.keyed) {
      const last = (this.#equals.get(bare) ?? 0) - 1;
      if (last < 0) return null;
      key = `${bare}\u0000${last}`;
      if (last === 0) this.#equals.delete(bare);
      else this.#equals.set(bare, last);
    }
    const record = this.#byKey.get(key) ?? null;
    if (record) {
      this.#byKey.delete(key);
      this.size -= 1;
    }
    return record;
  }

  /**
   * @param {RowRecord} record
   * @param {number} now
   * @param {Counts} counts
   */
  #drop(record, now, counts) {
    // The record stays in the list until the next sweep or filter, so it needs a mark.
    record.gone = now || -1;
    if (now) this.#fading += 1;
    record.version += 1;
    counts.removed += 1;
  }

  /** @param {Cell[]} cells */
  #newKey(cells) {
    const bare = keyOf(cells, this.#keyAt);
    if (this.keyed) return bare;
    const number = this.#equals.get(bare) ?? 0;
    this.#equals.set(bare, number + 1);
    return `${bare}\u0000${number}`;
  }
}
