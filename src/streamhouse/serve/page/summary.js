// Summarizes changes for screen readers, at growing intervals while changes continue.

import { count, whole } from "./format.js";

/** @typedef {import("./rows.js").Counts} Counts */

const WAITS_MS = [5000, 10_000, 20_000, 40_000, 60_000];
const CALM_MS = 30_000;

export class Summary {
  #tell;
  /** @type {Counts} */
  #counts = { added: 0, changed: 0, removed: 0 };
  #timer = 0;
  #toldAt = -Infinity;
  #often = 0;

  /** @param {(changes: string) => void} tell */
  constructor(tell) {
    this.#tell = tell;
  }

  close() {
    clearTimeout(this.#timer);
  }

  /** @param {Counts} counts */
  add({ added, changed, removed }) {
    this.#counts.added += added;
    this.#counts.changed += changed;
    this.#counts.removed += removed;
    if (this.#timer) return;
    if (performance.now() - this.#toldAt > CALM_MS) this.#often = 0;
    const wait = WAITS_MS[Math.min(this.#often, WAITS_MS.length - 1)];
    this.#often += 1;
    this.#timer = setTimeout(() => this.#tellChanges(), wait);
  }

  #tellChanges() {
    this.#timer = 0;
    this.#toldAt = performance.now();
    const { added, changed, removed } = this.#counts;
    this.#counts = { added: 0, changed: 0, removed: 0 };
    const parts = [
      changed ? `${count(changed, "row")} changed` : "",
      added ? `${whole(added)} new` : "",
      removed ? `${whole(removed)} removed` : "",
    ].filter(Boolean);
    if (parts.length) this.#tell(parts.join(", "));
  }
}
