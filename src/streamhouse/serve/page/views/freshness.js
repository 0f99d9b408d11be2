// Shows the state of the connection, the age of the last commit, and its delay to the screen.

import { whole } from "../format/numbers.js";
import { ago } from "../format/times.js";
import { serverNow } from "../server/server-clock.js";
import { h, say } from "../ui/dom.js";

/** @typedef {import("../server/change-stream.js").StreamEvent} StreamEvent */
/** @typedef {import("../server/change-stream.js").StreamState} StreamState */

/** @type {{ [state in StreamState | "past"]: string }} */
const WORDS = {
  connecting: "connecting",
  live: "live",
  lost: "reconnecting",
  gone: "missing",
  large: "polled",
  past: "past",
};

export class Freshness {
  #isPast;
  /** @type {StreamState} */
  #state = "connecting";
  /** @type {number | null} */
  #snapshot = null;
  /** @type {number | null} */
  #time = null;
  /** @type {number | null} */
  #ms = null;
  #pill = h("span", { className: "pill" });
  #age = h("span", { className: "fresh-age" });
  #delay = h("span", { className: "fresh-delay", title: "Delay from the commit to this screen" });
  element = h("div", { className: "fresh" }, this.#pill, this.#age, this.#delay);

  /** @param {() => boolean} isPast whether the past is shown */
  constructor(isPast) {
    this.#isPast = isPast;
  }

  /** The last snapshot of the stream; null before the first. */
  get snapshot() {
    return this.#snapshot;
  }

  get state() {
    return this.#state;
  }

  set state(state) {
    this.#state = state;
    this.update();
  }

  /**
   * Records the commit of an event, and measures when it is on the screen.
   * @param {StreamEvent} event
   */
  note({ type, snapshot, time }) {
    const committed = time ? Date.parse(time) : null;
    if (snapshot !== this.#snapshot && type === "changes" && committed !== null)
      this.#measure(committed);
    this.#snapshot = snapshot;
    this.#time = committed;
  }

  update() {
    const past = this.#isPast();
    const shown = past ? "past" : this.#state;
    say(this.#pill, WORDS[shown]);
    this.#pill.dataset.state = shown;
    say(this.#age, this.#time === null || past ? "" : ago(serverNow() - this.#time));
    say(this.#delay, this.#ms === null || past ? "" : `${whole(this.#ms)} ms to screen`);
  }

  /** @param {number} committed */
  #measure(committed) {
    // The next frame draws the change; it is on the screen when the frame after that begins.
    requestAnimationFrame(() =>
      requestAnimationFrame(() => {
        this.#ms = Math.max(0, Math.round(serverNow() - committed));
      }),
    );
  }
}
