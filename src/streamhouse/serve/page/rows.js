// The rows of one view, kept by key, and what the last change did to them.

import { jsonText } from "./format.js";

const FADE_MS = 700;
const MANY = 400;

/** Names that a stream has for itself: such a column comes with underscores. */
const RESERVED = ["rowkind", "snapshot"];

/**
 * All rows of a view. Each is a record `{cells, key, seq, born, gone, changed, version, text}`; times are
 * those of `performance.now()`, `changed` are the numbers of the cells that the last change set.
 *
 * Without a key in its columns a view is a multiset: the key is all columns and a number among equals.
 */
export class Rows {
  #byKey = new Map();
  #equals = new Map();
  #keyAt;
  #names;
  #streamNames;
  #seq = 0;
  #fading = 0;

  constructor(columns, key) {
    this.columns = columns;
    this.#names = columns.map((column) => column.name);
    this.#streamNames = streamNames(this.#names);
    const at = key.map((name) => this.#names.indexOf(name));
    this.keyed = at.length > 0 && !at.includes(-1);
    this.#keyAt = this.keyed ? at : this.#names.map((_, index) => index);
    /** Records in the order in which they came, those that fade out included. */
    this.list = [];
    this.size = 0;
    /** Grows with each change. */
    this.version = 0;
  }

  get keyColumns() {
    return this.#keyAt;
  }

  /** Takes an event of a stream; `{added, changed, removed}` counts. `quiet`: nothing is marked. */
  take(event, quiet = false) {
    const names = event.plain ? this.#names : this.#streamNames;
    this.version += 1;
    const now = performance.now();
    if (event.type === "snapshot")
      return this.#replace(event.rows, names, quiet || this.version === 1, now);
    return this.#apply(event.rows, names, now);
  }

  /** Lets go of the rows that have faded out; whether any are left that still do. */
  sweep() {
    if (this.#fading) {
      const now = performance.now();
      const before = this.list.length;
      this.list = this.list.filter((record) => !record.gone || now - record.gone < FADE_MS);
      this.#fading -= before - this.list.length;
    }
    return this.#fading > 0;
  }

  #apply(rows, names, now) {
    const counts = { added: 0, changed: 0, removed: 0 };
    const fade = rows.length <= MANY;
    let before = null;
    for (const row of rows) {
      const cells = names.map((name) => row[name]);
      const kind = row.rowkind;
      if (kind === "-U") {
        before = this.keyed ? null : this.#find(cells, true);
      } else if (kind === "-D") {
        const record = this.#find(cells, true);
        if (record) this.#drop(record, fade ? now : 0, counts);
      } else {
        const record = this.keyed ? this.#byKey.get(this.#keyOf(cells)) : before;
        before = null;
        if (record) this.#set(record, cells, now, counts);
        else this.#add(cells, now, counts);
      }
    }
    this.#settle(fade);
    return counts;
  }

  #replace(rows, names, quiet, now) {
    const counts = { added: 0, changed: 0, removed: 0 };
    const old = this.#byKey;
    this.#byKey = new Map();
    this.#equals = new Map();
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

  #add(cells, now, counts) {
    this.list.push(this.#record(this.#newKey(cells), cells, now));
    counts.added += 1;
    this.size += 1;
  }

  #record(key, cells, born) {
    const record = {
      key,
      cells,
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

  #set(record, cells, now, counts) {
    if (!this.keyed) {
      record.key = this.#newKey(cells);
      this.#byKey.set(record.key, record);
      this.size += 1;
    }
    this.#assign(record, cells, now, counts);
  }

  #assign(record, cells, now, counts) {
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

  /** The record of a row; with `remove` it is no longer found under its key. */
  #find(cells, remove) {
    const bare = this.#keyOf(cells);
    let key = bare;
    if (!this.keyed) {
      const last = (this.#equals.get(bare) ?? 0) - 1;
      if (last < 0) return null;
      key = `${bare}\u0000${last}`;
      if (remove && last === 0) this.#equals.delete(bare);
      else if (remove) this.#equals.set(bare, last);
    }
    const record = this.#byKey.get(key) ?? null;
    if (record && remove) {
      this.#byKey.delete(key);
      this.size -= 1;
    }
    return record;
  }

  #drop(record, now, counts) {
    // Marked in any case: it is in the list until that is made anew.
    record.gone = now || -1;
    if (now) this.#fading += 1;
    record.version += 1;
    counts.removed += 1;
  }

  #settle(fade) {
    if (!fade) this.list = this.list.filter((record) => record.gone !== -1);
  }

  #newKey(cells) {
    const bare = this.#keyOf(cells);
    if (this.keyed) return bare;
    const number = this.#equals.get(bare) ?? 0;
    this.#equals.set(bare, number + 1);
    return `${bare}\u0000${number}`;
  }

  #keyOf(cells) {
    const at = this.#keyAt;
    if (at.length === 1) return textOf(cells[at[0]]);
    return at.map((index) => textOf(cells[index])).join("\u0001");
  }
}

function textOf(value) {
  if (value === null || value === undefined) return "\u0002";
  return typeof value === "object" ? jsonText(value) : String(value);
}

function same(one, other) {
  if (one === other) return true;
  return (
    typeof one === "object" &&
    typeof other === "object" &&
    one !== null &&
    other !== null &&
    jsonText(one) === jsonText(other)
  );
}

/** A function that compares two cells' values: numbers by size, null last. */
export function comparator(kind) {
  const as =
    kind === "number"
      ? (value) => (typeof value === "string" ? Number(value) : value)
      : (value) => value;
  return (one, other) => {
    const a = as(one);
    const b = as(other);
    if (a === b) return 0;
    if (a === null || a === undefined) return b === null || b === undefined ? 0 : 1;
    if (b === null || b === undefined) return -1;
    if (kind === "nested") return compareText(jsonText(a), jsonText(b));
    return a < b ? -1 : 1;
  };
}

function compareText(one, other) {
  if (one === other) return 0;
  return one < other ? -1 : 1;
}

/** How a stream calls the columns. */
export function streamNames(names) {
  const taken = new Set([...names, ...RESERVED]);
  return names.map((name) => {
    if (!RESERVED.includes(name)) return name;
    let other = name;
    while (taken.has(other)) other += "_";
    taken.add(other);
    return other;
  });
}
