// A part of a large view: the rows that the server returns for an order and a filter, and how many
// rows there are.

import { messageOf } from "./errors.js";
import { json } from "./requests.js";
import { viewPath } from "./urls.js";
import { countRows } from "./view-query.js";

/** @typedef {import("./responses.d.ts").RowsResponse} RowsResponse */

/**
 * The sort order and the condition of a request; either is empty if there is none. `newestLast`: the
 * rows are reversed, to be in the order in which they arrived.
 * @typedef {{ order: string, filter: string, newestLast: boolean }} Part
 */

/**
 * `matching` is the number of rows that the filter matches, `total` that of all; both are null if
 * the server does not count them, for the reason `uncounted`.
 * @typedef {{ matching: number | null, total: number | null, uncounted: string }} RowCounts
 */

export const PART_ROWS = 500;
const COUNTED = 100;

/** Reads parts of one view. */
export class RowParts {
  #name;
  /** @type {Map<string, Promise<number>>} */
  #counts = new Map();

  /** @param {string} name */
  constructor(name) {
    this.#name = name;
  }

  /**
   * The first rows of a part; null if they are those of `etag`. Throws `Problem`.
   * @param {Part} part
   * @param {{ signal: AbortSignal, etag?: string | null, snapshot?: number }} request
   */
  async read({ order, filter, newestLast }, { signal, etag, snapshot }) {
    const parameters = new URLSearchParams({ limit: String(PART_ROWS) });
    if (order) parameters.set("order", order);
    if (filter) parameters.set("filter", filter);
    if (snapshot !== undefined) parameters.set("as_of", String(snapshot));
    const response = await json(viewPath(this.#name, `?${parameters}`), { etag, signal });
    const found = /** @type {RowsResponse | null} */ (response);
    if (newestLast) found?.rows.reverse();
    return found;
  }

  /**
   * Counts the rows of a part, once for each snapshot.
   * @param {number | null} snapshot
   * @param {string} filter
   * @param {AbortSignal} signal
   * @returns {Promise<RowCounts>}
   */
  async count(snapshot, filter, signal) {
    try {
      const [matching, total] = await Promise.all([
        this.#count(snapshot, filter, signal),
        this.#count(snapshot, "", signal),
      ]);
      return { matching, total, uncounted: "" };
    } catch (problem) {
      if (signal.aborted) throw problem;
      return { matching: null, total: null, uncounted: messageOf(problem) };
    }
  }

  /**
   * @param {number | null} snapshot
   * @param {string} filter
   * @param {AbortSignal} signal
   */
  #count(snapshot, filter, signal) {
    const key = `${snapshot} ${filter}`;
    const known = snapshot === null ? undefined : this.#counts.get(key);
    if (known) return known;
    const found = countRows(this.#name, snapshot, filter, signal);
    this.#counts.set(key, found);
    found.catch(() => this.#counts.delete(key));
    if (this.#counts.size > COUNTED) this.#counts.delete([...this.#counts.keys()][0]);
    return found;
  }
}
