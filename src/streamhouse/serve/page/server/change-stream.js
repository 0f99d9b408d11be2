// Follows the changes of one view: by WebSocket, by server-sent events if a proxy blocks those, by
// polling if the view is too large for a stream.

import { messageOf, problemOf, statusOf } from "./errors.js";
import { request } from "./requests.js";
import { RowParts } from "./row-part.js";
import { eventsOf } from "./server-sent-events.js";
import { viewPath } from "./urls.js";
import { openWebSocket } from "./web-socket.js";

/** @typedef {import("./responses.d.ts").ErrorBody} ErrorBody */
/** @typedef {import("./responses.d.ts").RowsMessage} RowsMessage */
/** @typedef {import("./responses.d.ts").StreamMessage} StreamMessage */
/** @typedef {import("./row-part.js").Part} Part */
/** @typedef {import("./row-part.js").RowCounts} RowCounts */

/** @typedef {"connecting" | "live" | "lost" | "gone" | "large"} StreamState */

/**
 * All rows of a snapshot, or changes; `part`: the rows of a large view, `other`: those of another
 * order or filter than before.
 * @typedef {import("./stream-columns.js").RowsEvent & { snapshot: number | null, time: string | null,
 *   part?: boolean, other?: boolean }} StreamEvent
 */

/**
 * `progress` takes the number of rows received of a large event. `part` returns the part to poll of a
 * large view, `counted` takes how many rows it has.
 * @typedef {Object} Handlers
 * @property {(event: StreamEvent) => void} event
 * @property {(rows: number) => void} progress
 * @property {(state: StreamState, text: string) => void} state
 * @property {() => Part} part
 * @property {(counts: RowCounts) => void} counted
 */

/**
 * How to continue after a connection: at once, after a pause, or not at all.
 * @typedef {{ wait?: boolean, text?: string, gone?: boolean, end?: boolean }} Outcome
 */

const WAITS_MS = [200, 500, 1000, 2000, 3000];
const POLL_MS = 2000;
const GONE = 4404;
const OVERFLOW = 4408;
const EXPIRED = 4410;

/** Follows a view until `close`. */
export class ChangeStream {
  #name;
  #handlers;
  #closed = false;
  /** @type {string | null} */
  #last = null;
  #failed = 0;
  /** @type {RowsMessage[]} */
  #parts = [];
  /** @type {WebSocket | null} */
  #socket = null;
  #stop = new AbortController();
  /** @type {AbortController | null} */
  #changed = null;
  #wake = () => {};

  /**
   * @param {string} name
   * @param {Handlers} handlers
   */
  constructor(name, handlers) {
    this.#name = name;
    this.#handlers = handlers;
    this.#run();
  }

  /** Polls a large view at once, since another part of it is wanted. */
  poll() {
    this.#changed?.abort();
    this.#wake();
  }

  close() {
    this.#closed = true;
    this.#stop.abort();
    this.#socket?.close();
    this.#wake();
  }

  async #run() {
    const online = () => this.#wake();
    addEventListener("online", online, { signal: this.#stop.signal });
    this.#handlers.state("connecting", "");
    while (!this.#closed) {
      /** @type {Outcome} */
      let outcome;
      try {
        outcome = await this.#connect();
      } catch (error) {
        const silent = error instanceof TypeError;
        if (statusOf(error) === 404) outcome = this.#isGone(messageOf(error));
        else {
          const text = silent ? "the server does not respond" : messageOf(error);
          outcome = { wait: true, text };
        }
      }
      this.#parts = [];
      if (this.#closed || outcome.end) return;
      if (outcome.wait) await this.#pause(outcome);
    }
  }

  /**
   * Runs one connection until it ends.
   * @returns {Promise<Outcome>}
   */
  async #connect() {
    const connection = openWebSocket(this.#path(), (message) => this.#take(message));
    this.#socket = connection.socket;
    const ended = await connection.ended;
    if (this.#closed) return {};
    if (ended.code === OVERFLOW && ended.opened) return {};
    if (ended.code === EXPIRED) this.#last = null;
    if (ended.code === GONE) return this.#isGone(ended.reason);
    if (ended.opened) return { wait: true, text: ended.reason || "the connection was closed" };
    return this.#overHttp();
  }

  /**
   * The view is gone: report it at once, and retry at the longest intervals.
   * @param {string} text
   */
  #isGone(text) {
    this.#failed = Math.max(this.#failed, 2);
    return { wait: true, text, gone: true };
  }

  #path() {
    const last = this.#last === null ? "" : `?last_id=${encodeURIComponent(this.#last)}`;
    return viewPath(this.#name, `/changes${last}`);
  }

  /**
   * Repeats the request over HTTP, since a failed WebSocket does not report why; follows the stream
   * if that works.
   * @returns {Promise<Outcome>}
   */
  async #overHttp() {
    const response = await request(this.#path(), {
      headers: { Accept: "text/event-stream" },
      signal: this.#stop.signal,
    });
    if (response.ok) return this.#readEvents(response);
    const problem = problemOf(response.status, await response.text());
    if (problem.status === 410 || problem.status === 400) {
      const fromStart = this.#last === null;
      this.#last = null;
      return { wait: fromStart, text: problem.message };
    }
    if (problem.status === 413) {
      this.#handlers.state("large", "");
      return this.#poll();
    }
    if (problem.status === 404) return this.#isGone(problem.message);
    return { wait: true, text: problem.message };
  }

  /**
   * @param {Response} response
   * @returns {Promise<Outcome>}
   */
  async #readEvents(response) {
    /** @type {ErrorBody | null} */
    let error = null;
    for await (const message of eventsOf(response)) {
      if (message.type === "error") error = message.error;
      else this.#take(message);
    }
    if (error?.code === "not_found") return this.#isGone(error.message);
    if (error?.code === "expired") this.#last = null;
    return { wait: true, text: error?.message ?? "the connection was closed" };
  }

  /** @param {StreamMessage} message */
  #take(message) {
    if (message.type === "heartbeat") {
      if (message.id && !this.#parts.length) this.#last = message.id;
      this.#connected();
      return;
    }
    if (message.type !== "snapshot" && message.type !== "changes") return;
    this.#parts.push(message);
    if (message.more) {
      this.#handlers.progress(this.#parts.reduce((rows, part) => rows + part.rows.length, 0));
      return;
    }
    const rows = this.#parts.length === 1 ? message.rows : this.#parts.flatMap((part) => part.rows);
    const type = this.#parts[0].type;
    this.#parts = [];
    if (message.id) this.#last = message.id;
    this.#connected();
    this.#handlers.event({ type, snapshot: message.snapshot, time: message.time, rows });
  }

  #connected() {
    this.#failed = 0;
    this.#handlers.state("live", "");
  }

  /**
   * Polls until the view is closed.
   * @returns {Promise<Outcome>}
   */
  async #poll() {
    const parts = new RowParts(this.#name);
    /** @type {string | null} */
    let etag = null;
    let last = "";
    while (!this.#closed) {
      const part = this.#handlers.part();
      const wanted = JSON.stringify(part);
      const other = wanted !== last;
      this.#changed = new AbortController();
      const signal = AbortSignal.any([this.#stop.signal, this.#changed.signal]);
      try {
        const found = await parts.read(part, { etag: other ? null : etag, signal });
        last = wanted;
        if (found) {
          etag = found.etag ?? null;
          this.#handlers.event({ type: "snapshot", plain: true, part: true, other, ...found });
          this.#handlers.state("large", "");
          this.#handlers.counted(await parts.count(found.snapshot, part.filter, signal));
        }
        this.#failed = 0;
        this.#handlers.state("large", "");
      } catch (problem) {
        // Another part is wanted meanwhile.
        if (this.#changed.signal.aborted) continue;
        const status = statusOf(problem);
        if (this.#closed || status === null || status === 404) throw problem;
        // The server is there, but cannot return this part.
        last = "";
        this.#handlers.state("large", messageOf(problem));
      }
      await this.#sleep(POLL_MS);
    }
    return { end: true };
  }

  /** @param {Outcome} outcome */
  async #pause({ text = "", gone }) {
    const wait = WAITS_MS[Math.min(this.#failed, WAITS_MS.length - 1)] * (0.75 + Math.random() / 2);
    this.#failed += 1;
    // The first retry is almost immediate and mostly succeeds, so it is not shown.
    if (this.#failed > 1) this.#handlers.state(gone ? "gone" : "lost", text);
    await this.#sleep(wait);
  }

  /**
   * @param {number} ms
   * @returns {Promise<void>}
   */
  #sleep(ms) {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, ms);
      this.#wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }
}
