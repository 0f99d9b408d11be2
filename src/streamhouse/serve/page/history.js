// The slider through a view's snapshots, and the rows of the one it stands on.

import { json, serverNow, viewPath } from "./server.js";
import { h, say } from "./dom.js";
import { ago, moment } from "./format.js";

const KEPT = 500;
const ROWS = 20_000;
const CACHED = 24;
const WAIT_MS = 60;

/**
 * Handlers: `past(answer, snapshot)` with the rows as they were, `live()` when the reader comes back,
 * `failed(problem)` when a moment cannot be had any more.
 */
export class History {
  #name;
  #handlers;
  #snapshots = [];
  #at = null;
  #asked = null;
  #timer = 0;
  #kept = new Map();

  constructor(name, handlers) {
    this.#name = name;
    this.#handlers = handlers;
    this.slider = h("input", {
      type: "range",
      min: 0,
      max: 0,
      value: 0,
      step: 1,
      disabled: true,
      "aria-label": "Snapshot",
      oninput: () => this.#moved(),
    });
    this.text = h("span", { className: "history-text" });
    this.back = h(
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
    this.next = h(
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
    this.button = h(
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
      this.back,
      this.slider,
      this.next,
      this.text,
      this.button,
    );
    this.#tell();
    this.load();
  }

  close() {
    clearTimeout(this.#timer);
    this.#asked?.abort();
  }

  /** Whether the past is shown. */
  get past() {
    return this.#at !== null;
  }

  /** Asks which snapshots there are. */
  async load() {
    try {
      const found = await json(viewPath(this.#name, `/snapshots?limit=${KEPT}`));
      // Whoever stands in the past has a place in the list that there is.
      if (this.past) return;
      const known = (found.snapshots ?? [])
        .map(({ snapshot, time }) => ({ snapshot, time }))
        .reverse();
      const newer = this.#snapshots.filter(
        ({ snapshot }) => snapshot > (known.at(-1)?.snapshot ?? -1),
      );
      this.#snapshots = [...known, ...newer];
      this.#tell();
    } catch (problem) {
      // A view over several tables has no snapshots of its own.
      this.element.hidden = problem.status === 404 || problem.status === 400;
    }
  }

  /** The view is another table from now on, and so is its past. */
  anew() {
    this.live();
    this.#snapshots = [];
    this.#kept.clear();
    this.load();
  }

  /** A new snapshot was seen live. */
  note(snapshot, time) {
    if (snapshot === null || snapshot === undefined) return;
    const last = this.#snapshots.at(-1);
    if (last && last.snapshot >= snapshot) return;
    this.#snapshots.push({ snapshot, time });
    // The oldest go, as at the server; not while somebody stands on one of them.
    if (this.#snapshots.length > KEPT && !this.past) this.#snapshots.shift();
    this.#tell();
  }

  /** Goes some snapshots back or forward; forward from the newest is live. */
  step(by) {
    const newest = this.#snapshots.length - 1;
    if (newest < 0 || (!this.past && by > 0)) return;
    const to = (this.#at ?? newest) + by;
    if (to > newest) this.live();
    else this.#go(Math.max(0, to));
  }

  live() {
    this.#asked?.abort();
    clearTimeout(this.#timer);
    const was = this.past;
    this.#at = null;
    this.#tell();
    if (was) this.#handlers.live();
  }

  #moved() {
    const at = Number(this.slider.value);
    // Its right end is now, and goes on.
    if (at >= this.#snapshots.length - 1) this.live();
    else this.#go(at);
  }

  #go(at) {
    this.#at = at;
    this.#tell();
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#show(), WAIT_MS);
  }

  async #show() {
    const wanted = this.#snapshots[this.#at];
    this.#asked?.abort();
    this.#asked = new AbortController();
    try {
      const answer = await this.#rowsOf(wanted.snapshot, this.#asked.signal);
      if (this.past && this.#snapshots[this.#at]?.snapshot === wanted.snapshot)
        this.#handlers.past(answer, wanted);
    } catch (problem) {
      if (problem.name === "AbortError") return;
      this.#handlers.failed(problem);
      this.live();
      this.load();
    }
  }

  async #rowsOf(snapshot, signal) {
    const known = this.#kept.get(snapshot);
    if (known) return known;
    const path = viewPath(this.#name, `?as_of=${snapshot}&limit=${ROWS}`);
    const answer = await json(path, { signal });
    answer.cut = answer.rows.length === ROWS;
    this.#kept.set(snapshot, answer);
    if (this.#kept.size > CACHED) this.#kept.delete(this.#kept.keys().next().value);
    return answer;
  }

  #tell() {
    const newest = Math.max(0, this.#snapshots.length - 1);
    const at = this.#at ?? newest;
    this.slider.max = newest;
    this.slider.value = at;
    this.slider.disabled = newest === 0;
    this.back.disabled = at === 0;
    this.next.disabled = !this.past;
    this.slider.style.setProperty("--share", `${newest ? (at / newest) * 100 : 100}%`);
    const found = this.#snapshots[at];
    const text =
      this.past && found
        ? pastText(found)
        : found
          ? `snapshot ${found.snapshot}`
          : "no snapshot yet";
    say(this.text, text);
    this.slider.setAttribute("aria-valuetext", this.past ? text : `live, ${text}`);
    this.element.classList.toggle("past", this.past);
    this.button.setAttribute("aria-pressed", String(!this.past));
  }
}

/** "snapshot 12, 14:03:22, 5 min ago". */
function pastText({ snapshot, time }) {
  const ms = Date.parse(time ?? "");
  return Number.isNaN(ms)
    ? `snapshot ${snapshot}`
    : `snapshot ${snapshot} · ${moment(ms)} · ${ago(serverNow() - ms)}`;
}
