// Summarizes changes for screen readers, at growing intervals while changes continue.

import { count, whole } from "../format/numbers.js";

/** @typedef {import("../rows/row-store.js").Counts} Counts */

const WAITS_MS = [5000, 10_000, 20_000, 40_000, 60_000];
const CALM_MS = 30_000;

export class ChangeSummary {
  #announce;
  /** @type {Counts} */
  #counts = { added: 0, changed: 0, removed: 0 };
  #timer = 0;
  #announcedAt = -Infinity;
  #announcements = 0;

  /** @param {(changes: string) => void} announce */
  constructor(announce) {
    this.#announce = announce;
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
    if (performance.now() - this.#announcedAt > CALM_MS) this.#announcements = 0;
    const wait = WAITS_MS[Math.min(this.#announcements, WAITS_MS.length - 1)];
    this.#announcements += 1;
    this.#timer = setTimeout(() => this.#flush(), wait);
  }

  #flush() {
    this.#timer = 0;
    this.#announcedAt = performance.now();
    const { added, changed, removed } = this.#counts;
    this.#counts = { added: 0, changed: 0, removed: 0 };
    const parts = [
      changed ? `${count(changed, "row")} changed` : "",
      added ? `${whole(added)} new` : "",
      removed ? `${whole(removed)} removed` : "",
    ].filter(Boolean);
    if (parts.length) this.#announce(parts.join(", "));
  }
}
