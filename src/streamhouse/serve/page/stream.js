// The changes of one view as they come: by WebSocket, by server-sent events where a proxy lets no
// WebSocket through, by asking again and again where the view is too large to be followed.

import { address, json, parse, problemOf, request, token, viewPath } from "./server.js";

const WAITS_MS = [200, 500, 1000, 2000, 3000];
const SILENT_MS = 90_000;
const POLL_MS = 2000;
const POLL_ROWS = 500;
const GONE = 4404;
const OVERFLOW = 4408;
const EXPIRED = 4410;

/**
 * Follows a view until `close`. Handlers: `event({type, snapshot, time, rows})` with a whole
 * snapshot's rows or changes, `progress(rows)` while a large one comes in parts, `state(kind, text)`
 * with "connecting", "live", "lost", "gone" or "large". `order()` gives the order of the first rows
 * of a view that is too large.
 */
export class Stream {
  #name;
  #handlers;
  #closed = false;
  #last = null;
  #failed = 0;
  #parts = [];
  #ended = null;
  #socket = null;
  #stop = new AbortController();
  #wake = () => {};

  constructor(name, handlers) {
    this.#name = name;
    this.#handlers = handlers;
    this.#run();
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
      let how;
      try {
        how = await this.#follow();
      } catch (error) {
        const silent = error instanceof TypeError;
        if (error.status === 404) how = this.#isGone(error.message);
        else how = { wait: true, text: silent ? "the server does not answer" : error.message };
      }
      this.#parts = [];
      if (this.#closed || how.end) return;
      if (how.wait) await this.#pause(how);
    }
  }

  /** One connection, from its beginning to its end; how to go on. */
  async #follow() {
    const ended = await this.#overSocket();
    if (this.#closed) return {};
    if (ended.code === OVERFLOW && ended.opened) return {};
    if (ended.code === EXPIRED) this.#last = null;
    if (ended.code === GONE) return this.#isGone(ended.reason);
    if (ended.opened) return { wait: true, text: ended.reason || "the connection was closed" };
    return this.#overHttp();
  }

  /** Said at once, and looked for every few seconds. */
  #isGone(text) {
    this.#failed = Math.max(this.#failed, 2);
    return { wait: true, text, gone: true };
  }

  #path() {
    const last = this.#last === null ? "" : `?last_id=${encodeURIComponent(this.#last)}`;
    return viewPath(this.#name, `/changes${last}`);
  }

  #overSocket() {
    const where = address(this.#path());
    where.protocol = where.protocol === "https:" ? "wss:" : "ws:";
    const secret = token();
    const socket = secret
      ? new WebSocket(where, ["streamhouse", `bearer.${base64url(secret)}`])
      : new WebSocket(where);
    this.#socket = socket;
    let opened = false;
    let watch = 0;
    const heard = () => {
      clearTimeout(watch);
      // A connection that died without a word; heartbeats come far more often.
      watch = setTimeout(() => socket.close(), SILENT_MS);
    };
    heard();
    socket.addEventListener("open", () => {
      opened = true;
    });
    socket.addEventListener("message", (event) => {
      heard();
      this.#take(parse(event.data));
    });
    return new Promise((resolve) => {
      socket.addEventListener("close", (event) => {
        clearTimeout(watch);
        resolve({ opened, code: event.code, reason: event.reason });
      });
    });
  }

  /** Why no WebSocket came about, as only an HTTP answer tells; or the same stream over HTTP. */
  async #overHttp() {
    const answer = await request(this.#path(), {
      headers: { Accept: "text/event-stream" },
      signal: this.#stop.signal,
    });
    if (answer.ok) {
      this.#ended = null;
      await this.#readEvents(answer);
      const { code, message } = this.#ended ?? {};
      if (code === "not_found") return this.#isGone(message);
      if (code === "expired") this.#last = null;
      return { wait: true, text: message ?? "the connection was closed" };
    }
    const problem = problemOf(answer.status, await answer.text());
    if (problem.status === 410 || problem.status === 400) {
      const begun = this.#last === null;
      this.#last = null;
      return { wait: begun, text: problem.message };
    }
    if (problem.status === 413) {
      this.#handlers.state("large", problem.message);
      return this.#poll();
    }
    if (problem.status === 404) return this.#isGone(problem.message);
    return { wait: true, text: problem.message };
  }

  async #readEvents(answer) {
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      text += value;
      const blocks = text.split(/\r?\n\r?\n/);
      text = blocks.pop();
      for (const block of blocks) this.#takeBlock(block);
    }
  }

  #takeBlock(block) {
    const fields = { event: "message", data: [] };
    for (const line of block.split(/\r?\n/)) {
      const [, name, value] = /^([^:]+): ?(.*)$/s.exec(line) ?? [];
      if (name === "data") fields.data.push(value);
      else if (name) fields[name] = value;
    }
    if (fields.data.length)
      this.#take({ type: fields.event, id: fields.id ?? null, ...parse(fields.data.join("\n")) });
  }

  #take(message) {
    if (message.type === "heartbeat") {
      if (message.id && !this.#parts.length) this.#last = message.id;
      this.#lives();
      return;
    }
    if (message.type === "error") this.#ended = message.error;
    if (message.type !== "snapshot" && message.type !== "changes") return;
    this.#parts.push(message);
    if (message.more) {
      this.#handlers.progress?.(this.#parts.reduce((rows, part) => rows + part.rows.length, 0));
      return;
    }
    const rows = this.#parts.length === 1 ? message.rows : this.#parts.flatMap((part) => part.rows);
    const type = this.#parts[0].type;
    this.#parts = [];
    if (message.id) this.#last = message.id;
    this.#lives();
    this.#handlers.event({ type, snapshot: message.snapshot, time: message.time, rows });
  }

  #lives() {
    this.#failed = 0;
    this.#handlers.state("live", "");
  }

  async #poll() {
    let etag = null;
    let asked = null;
    while (!this.#closed) {
      const order = this.#handlers.order?.() ?? "";
      if (order !== asked) etag = null;
      asked = order;
      const by = order ? `&order=${encodeURIComponent(order)}` : "";
      const path = viewPath(this.#name, `?limit=${POLL_ROWS}${by}`);
      const found = await json(path, { etag, signal: this.#stop.signal });
      if (found) {
        etag = found.etag ?? null;
        this.#handlers.event({ type: "snapshot", plain: true, ...found });
      }
      this.#failed = 0;
      this.#handlers.state("large", "");
      await this.#sleep(POLL_MS);
    }
    return { end: true };
  }

  async #pause({ text, gone }) {
    const wait = WAITS_MS[Math.min(this.#failed, WAITS_MS.length - 1)] * (0.75 + Math.random() / 2);
    this.#failed += 1;
    // The first attempt comes at once and mostly works: nothing is said of it.
    if (this.#failed > 1) this.#handlers.state(gone ? "gone" : "lost", text);
    await this.#sleep(wait);
  }

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

function base64url(text) {
  const bytes = new TextEncoder().encode(text);
  return btoa(String.fromCharCode(...bytes))
    .replaceAll("+", "-")
    .replaceAll("/", "_")
    .replaceAll("=", "");
}
