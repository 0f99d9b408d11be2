// The slider over a view's snapshots; it loads the rows of the selected one.

import { ago, dateAndTime } from "../format/times.js";
import { statusOf } from "../server/errors.js";
import { json } from "../server/requests.js";
import { RowParts } from "../server/row-part.js";
import { serverNow } from "../server/server-clock.js";
import { viewPath } from "../server/urls.js";
import { h, say } from "../ui/dom.js";

/** @typedef {import("../server/responses.d.ts").RowsResponse} RowsResponse */
/** @typedef {import("../server/responses.d.ts").SnapshotsResponse} SnapshotsResponse */
/** @typedef {import("../server/row-part.js").Part} Part */
/** @typedef {import("../server/row-part.js").RowCounts} RowCounts */

/** @typedef {{ snapshot: number, time: string | null }} Snapshot */

/**
 * The rows of a snapshot; `cut`: there are more than the limit of the request. `counts` are those of
 * a part of a large view.
 * @typedef {{ rows: RowsResponse["rows"], cut: boolean, counts: RowCounts | null }} PastRows
 */

/**
 * `past` takes the rows of a selected snapshot, `live` ends the past, `failed` takes the error of a
 * snapshot that cannot be read, `part` returns the part to read of a large view, null for all rows.
 * @typedef {Object} Handlers
 * @property {(past: PastRows, which: Snapshot) => void} past
 * @property {() => void} live
 * @property {(problem: unknown) => void} failed
 * @property {() => Part | null} part
 */

const MAX_SNAPSHOTS = 500;
const ROWS = 20_000;
const CACHED = 24;
const WAIT_MS = 60;

export class TimeTravel {
  #name;
  #handlers;
  /** @type {Snapshot[]} */
  #snapshots = [];
  /** @type {number | null} */
  #at = null;
  /** @type {AbortController | null} */
  #request = null;
  #timer = 0;
  /** @type {Map<string, PastRows>} */
  #cache = new Map();
  #parts;
  #text = h("span", { className: "history-text" });
  #slider;
  #back;
  #next;
  #button;

  /**
   * @param {string} name
   * @param {Handlers} handlers
   */
  constructor(name, handlers) {
    this.#name = name;
    this.#handlers = handlers;
    this.#parts = new RowParts(name);
    this.#slider = h("input", {
      type: "range",
      min: 0,
      max: 0,
      value: 0,
      step: 1,
      disabled: true,
      "aria-label": "Snapshot",
      oninput: () => this.#moved(),
    });
    this.#back = h(
      "button",
      {
        type: "button",
        className: "icon",
        "aria-label": "One snapshot back",
        title: "One snapshot back ([)",
        onclick: () => this.step(-1),
      },
      "‹",
    );
    this.#next = h(
      "button",
      {
        type: "button",
        className: "icon",
        "aria-label": "One snapshot forward",
        title: "One snapshot forward (])",
        onclick: () => this.step(1),
      },
      "›",
    );
    this.#button = h(
      "button",
      {
        type: "button",
        className: "live-button",
        title: "Back to live (l)",
        onclick: () => this.live(),
      },
      "Live",
    );
    this.element = h(
      "div",
      { className: "history", role: "group", "aria-label": "History" },
      this.#back,
      this.#slider,
      this.#next,
      this.#text,
      this.#button,
    );
    this.#update();
    this.load();
  }

  close() {
    clearTimeout(this.#timer);
    this.#request?.abort();
  }

  /** Whether the past is shown. */
  get past() {
    return this.#at !== null;
  }

  /** Loads the list of snapshots. */
  async load() {
    try {
      const path = viewPath(this.#name, `/snapshots?limit=${MAX_SNAPSHOTS}`);
      const found = /** @type {SnapshotsResponse} */ (await json(path));
      // The selected index refers to the current list.
      if (this.past) return;
      const known = found.snapshots.map(({ snapshot, time }) => ({ snapshot, time })).reverse();
      const newest = known.at(-1)?.snapshot ?? -1;
      const newer = this.#snapshots.filter(({ snapshot }) => snapshot > newest);
      this.#snapshots = [...known, ...newer];
      this.#update();
    } catch (problem) {
      // A SQL view has no snapshots.
      const status = statusOf(problem);
      this.element.hidden = status === 404 || status === 400;
    }
  }

  /** Drops the snapshots, since another table has taken the view's name. */
  reset() {
    this.live();
    this.#snapshots = [];
    this.#cache.clear();
    this.load();
  }

  /**
   * Adds a snapshot of the stream.
   * @param {number | null} snapshot
   * @param {string | null} time
   */
  note(snapshot, time) {
    if (snapshot === null) return;
    const last = this.#snapshots.at(-1);
    if (last && last.snapshot >= snapshot) return;
    this.#snapshots.push({ snapshot, time });
    // Not while the past is shown: the selected index refers to the current list.
    if (this.#snapshots.length > MAX_SNAPSHOTS && !this.past) this.#snapshots.shift();
    this.#update();
  }

  /**
   * Moves by some snapshots; a step beyond the newest goes live.
   * @param {number} by
   */
  step(by) {
    const newest = this.#snapshots.length - 1;
    if (newest < 0 || (!this.past && by > 0)) return;
    const to = (this.#at ?? newest) + by;
    if (to > newest) this.live();
    else this.#go(Math.max(0, to));
  }

  /** Reads the selected snapshot again, of which another part is wanted. */
  again() {
    if (this.#at !== null) this.#go(this.#at);
  }

  live() {
    this.#request?.abort();
    clearTimeout(this.#timer);
    const was = this.past;
    this.#at = null;
    this.#update();
    if (was) this.#handlers.live();
  }

  #moved() {
    const at = Number(this.#slider.value);
    // The right end of the slider is the live view.
    if (at >= this.#snapshots.length - 1) this.live();
    else this.#go(at);
  }

  /** @param {number} at */
  #go(at) {
    this.#at = at;
    this.#update();
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#show(this.#snapshots[at]), WAIT_MS);
  }

  /** @param {Snapshot} wanted */
  async #show(wanted) {
    this.#request?.abort();
    this.#request = new AbortController();
    try {
      const past = await this.#rowsOf(wanted.snapshot, this.#request.signal);
      if (this.#at !== null && this.#snapshots[this.#at]?.snapshot === wanted.snapshot)
        this.#handlers.past(past, wanted);
    } catch (problem) {
      if (problem instanceof DOMException && problem.name === "AbortError") return;
      this.#handlers.failed(problem);
      this.live();
      this.load();
    }
  }

  /**
   * @param {number} snapshot
   * @param {AbortSignal} signal
   */
  async #rowsOf(snapshot, signal) {
    const part = this.#handlers.part();
    const key = `${snapshot} ${JSON.stringify(part)}`;
    const known = this.#cache.get(key);
    if (known) return known;
    const past = part
      ? await this.#partOf(part, snapshot, signal)
      : await this.#allRowsOf(snapshot, signal);
    this.#cache.set(key, past);
    const [oldest] = this.#cache.keys();
    if (this.#cache.size > CACHED) this.#cache.delete(oldest);
    return past;
  }

  /**
   * @param {number} snapshot
   * @param {AbortSignal} signal
   * @returns {Promise<PastRows>}
   */
  async #allRowsOf(snapshot, signal) {
    const path = viewPath(this.#name, `?as_of=${snapshot}&limit=${ROWS}`);
    const { rows } = /** @type {RowsResponse} */ (await json(path, { signal }));
    return { rows, cut: rows.length === ROWS, counts: null };
  }

  /**
   * @param {Part} part
   * @param {number} snapshot
   * @param {AbortSignal} signal
   * @returns {Promise<PastRows>}
   */
  async #partOf(part, snapshot, signal) {
    const [found, counts] = await Promise.all([
      this.#parts.read(part, { signal, snapshot }),
      this.#parts.count(snapshot, part.filter, signal),
    ]);
    return { rows: found?.rows ?? [], cut: false, counts };
  }

  #update() {
    const newest = Math.max(0, this.#snapshots.length - 1);
    const at = this.#at ?? newest;
    this.#slider.max = String(newest);
    this.#slider.value = String(at);
    this.#slider.disabled = newest === 0;
    this.#back.disabled = at === 0;
    this.#next.disabled = !this.past;
    this.#slider.style.setProperty("--share", `${newest ? (at / newest) * 100 : 100}%`);
    const found = this.#snapshots[at];
    const text =
      this.past && found
        ? pastText(found)
        : found
          ? `snapshot ${found.snapshot}`
          : "no snapshot yet";
    say(this.#text, text);
    this.#slider.setAttribute("aria-valuetext", this.past ? text : `live, ${text}`);
    this.element.classList.toggle("past", this.past);
    this.#button.setAttribute("aria-pressed", String(!this.past));
  }
}

/**
 * "snapshot 12, 14:03:22, 5 min ago".
 * @param {Snapshot} which
 */
function pastText({ snapshot, time }) {
  const ms = Date.parse(time ?? "");
  return Number.isNaN(ms)
    ? `snapshot ${snapshot}`
    : `snapshot ${snapshot} · ${dateAndTime(ms)} · ${ago(serverNow() - ms)}`;
}
