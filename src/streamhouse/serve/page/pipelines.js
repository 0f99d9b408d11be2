// Running pipelines: state, rate, lag, the last error, and the graph of each.

import { json, problemOf, request, said, serverNow } from "./server.js";
import { command, empty, h, put, renew, say } from "./dom.js";
import { ago, count, whole } from "./format.js";
import { draw } from "./graph.js";
import { sure } from "./sure.js";

const EVERY_MS = 2000;

/**
 * `name` is the pipeline that is looked at, or null for the list. `tools` is what the page around it
 * does: `link(table)` is a view's address, `say(text)` and `lost(text)` tell. `allowed` promises
 * whether the server runs scripts for this reader: true, false, or null where it does not say.
 */
export class Pipelines {
  #name;
  #tools;
  #timer;
  #asking = false;
  #graph = undefined;
  #shown = "";
  #last = null;
  #may = null;
  #acting = false;
  #closed = false;

  constructor(main, name, tools, allowed) {
    this.#name = name;
    this.#tools = tools;
    this.body = h("div", { className: "pipelines" }, h("p", { className: "hint" }, "Loading …"));
    const back =
      name === null
        ? null
        : h("a", { className: "to-list always", href: "#/pipelines" }, "‹ Pipelines");
    const title = h(
      "div",
      { className: "titles" },
      h("h1", {}, name ?? "Pipelines"),
      h(
        "p",
        { className: "soft" },
        name === null
          ? "What keeps the tables of this warehouse up to date"
          : "A script that runs until it is stopped",
      ),
    );
    this.actions = h("div", { className: "buttons" });
    put(main, h("header", { className: "head" }, back, title, this.actions), this.body);
    allowed.then((may) => {
      this.#may = may !== false;
      if (this.#last) this.#act(this.#last);
    });
    this.load();
    this.#timer = setInterval(() => document.hidden || this.load(), EVERY_MS);
  }

  close() {
    this.#closed = true;
    clearInterval(this.#timer);
  }

  async load() {
    if (this.#asking) return;
    this.#asking = true;
    try {
      if (this.#name === null) this.#list(listOf(await json("pipelines")));
      else await this.#one(await json(`pipelines/${encodeURIComponent(this.#name)}`));
      if (!this.#closed) this.#tools.lost(null);
    } catch (problem) {
      if (!this.#closed) this.#failed(problem);
    } finally {
      this.#asking = false;
    }
  }

  #failed(problem) {
    if (problem instanceof TypeError && this.#shown) {
      // What was known is better than nothing.
      this.#tools.lost("the server does not answer");
      return;
    }
    const gone = problem.status === 404 && this.#name !== null;
    const title = gone ? "No such pipeline" : "Nothing is known of pipelines";
    put(this.body, empty(title, said(problem)));
    put(this.actions);
    delete this.actions.dataset.shown;
    this.#shown = "";
    this.#last = null;
  }

  #list(pipelines) {
    this.#shown = "all";
    if (!pipelines.length) {
      renew(
        this.body,
        empty(
          "No pipeline has run on this warehouse",
          "Start one in a terminal, or write it in the editor:",
          command("streamhouse run script.sql --warehouse …"),
          h("p", {}, h("a", { href: "#/editor", className: "main-button" }, "Open the editor")),
        ),
      );
      return;
    }
    renew(
      this.body,
      h(
        "ul",
        { className: "cards" },
        pipelines.map((each) => h("li", {}, this.#card(each))),
      ),
    );
  }

  #card(pipeline) {
    const queries = pipeline.queries ?? [];
    const rate = queries.reduce((sum, query) => sum + (query.rows_per_second ?? 0), 0);
    const error = errorOf(pipeline);
    return h(
      "a",
      { className: "card", href: `#/pipelines/${encodeURIComponent(pipeline.name)}` },
      h("div", { className: "card-head" }, state(pipeline.state), h("strong", {}, pipeline.name)),
      h(
        "dl",
        { className: "figures" },
        figure("queries", whole(queries.length)),
        figure("rows/s", whole(Math.round(rate))),
        figure("lag", lagOf(queries)),
        figure("started", since(pipeline.started)),
      ),
      error ? h("p", { className: "error-line" }, error) : null,
    );
  }

  async #one(pipeline) {
    // Without a script there is none, and nothing to ask for.
    if (pipeline.script)
      this.#graph ??= await json(`pipelines/${encodeURIComponent(this.#name)}/graph`).catch(
        () => null,
      );
    if (!this.#shown) this.#build(pipeline);
    renew(
      this.state,
      state(pipeline.state),
      h("span", { className: "soft" }, aboutProcess(pipeline)),
    );
    say(this.error, errorOf(pipeline) ?? "");
    renew(
      this.queries,
      (pipeline.queries ?? []).map((query) => this.#row(query)),
    );
    if (this.#graph?.nodes?.length) {
      const link = (node) => this.#tools.link(node.id);
      renew(this.graph, draw(this.#graph, { notes: this.#notes(pipeline), link }));
    }
    this.#last = pipeline;
    this.#act(pipeline);
  }

  #build(pipeline) {
    this.#shown = pipeline.name;
    this.state = h("p", { className: "state-line" });
    this.error = h("p", { className: "error-line", role: "status" });
    this.queries = h("tbody", {});
    this.graph = h("div", {
      className: "graph-scroll",
      role: "region",
      tabIndex: 0,
      "aria-label": "Graph of the script",
    });
    const heads = ["query", "rows/s", "lag", "batches", "last batch", "took", "last error"];
    const numbers = new Set(["rows/s", "lag", "batches", "took"]);
    const table = h(
      "table",
      { className: "plain" },
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          heads.map((head) =>
            h("th", { scope: "col", className: numbers.has(head) ? "number" : "" }, head),
          ),
        ),
      ),
      this.queries,
    );
    const script = pipeline.script
      ? h(
          "details",
          { className: "script" },
          h("summary", {}, "Script"),
          h("pre", {}, h("code", {}, pipeline.script)),
        )
      : null;
    put(
      this.body,
      this.state,
      this.error,
      this.graph,
      h(
        "div",
        { className: "plain-scroll", role: "region", tabIndex: 0, "aria-label": "Queries" },
        table,
      ),
      script,
      pipeline.startable ? this.#log() : null,
    );
  }

  /** What the pipeline has written last, asked for when it is opened. */
  #log() {
    const text = h("code", {});
    const load = async () => {
      try {
        const answer = await request(`pipelines/${encodeURIComponent(this.#name)}/log?lines=200`);
        const body = await answer.text();
        const told = answer.ok ? body : problemOf(answer.status, body).message;
        say(text, told || "It has written nothing.");
      } catch (problem) {
        say(text, said(problem));
      }
    };
    return h(
      "details",
      { className: "script", ontoggle: (event) => event.target.open && load() },
      h("summary", {}, "Log"),
      h("pre", {}, text),
    );
  }

  #row(query) {
    const to = this.#tools.link(query.target);
    const name = query.target ?? query.name;
    return h(
      "tr",
      {},
      h("th", { scope: "row" }, to ? h("a", { href: to }, name) : name),
      ...[
        rateOf(query),
        lagOf([query]),
        query.batches === null || query.batches === undefined ? "–" : whole(query.batches),
      ].map((text) => h("td", { className: "number" }, text)),
      h("td", {}, since(query.last_batch)),
      h(
        "td",
        { className: "number" },
        query.last_batch_ms === null || query.last_batch_ms === undefined
          ? "–"
          : `${whole(query.last_batch_ms)} ms`,
      ),
      h("td", { className: query.last_error ? "error-text" : "" }, query.last_error ?? "none"),
    );
  }

  /** What the queries do now, at their nodes of the graph. */
  #notes(pipeline) {
    const notes = new Map();
    for (const query of pipeline.queries ?? []) {
      const node = this.#graph.edges.find(
        (edge) => edge.kind === "writes" && edge.to === query.target,
      )?.from;
      if (node && pipeline.state === "running")
        notes.set(node, [`${rateOf(query)} rows/s · lag ${lagOf([query])}`]);
    }
    return notes;
  }

  #act(pipeline) {
    const shown = `${pipeline.state} ${this.#may}`;
    if (this.actions.dataset.shown === shown) return;
    const held = this.actions.contains(document.activeElement);
    this.actions.dataset.shown = shown;
    const running = pipeline.state === "running";
    put(
      this.actions,
      pipeline.script ? this.#button("Edit", () => this.#edit(pipeline)) : null,
      this.#may && !running ? this.#button("Forget", () => this.#forget()) : null,
      this.#may && !running && pipeline.startable !== false
        ? this.#button("Start from scratch", () => this.#startFromScratch())
        : null,
      // What was started in a terminal is stopped there.
      this.#may && pipeline.startable !== false ? this.#change(running) : null,
    );
    // Who has pressed the one stands on the other.
    if (held) this.actions.lastElementChild?.focus();
  }

  #button(text, onclick, className = "") {
    return h("button", { type: "button", className, onclick }, text);
  }

  #change(running) {
    if (running)
      return this.#button("Stop", () =>
        this.#ask("DELETE", "", "is asked to stop between two batches"),
      );
    const start = () => this.#ask("POST", "/start", "starts again");
    return this.#button("Start again", start, "main-button");
  }

  #edit({ name, script }) {
    sessionStorage.setItem("streamhouse.script", script);
    sessionStorage.setItem("streamhouse.script.name", name);
    location.hash = "#/editor";
  }

  async #forget() {
    const agreed = await sure(
      `Forget ${this.#name}?`,
      "Its script, log and status are removed. Its tables stay, and its checkpoints: the same script under this name goes on where it was.",
      "Forget",
    );
    if (agreed && (await this.#ask("POST", "/forget", "is forgotten")))
      location.hash = "#/pipelines";
  }

  async #startFromScratch() {
    const agreed = await sure(
      `Start ${this.#name} from scratch?`,
      "All rows of the tables that its queries write are removed, and computed anew from what their sources have now.",
      "Remove and start",
    );
    if (agreed) await this.#ask("POST", "/start", "starts from scratch", { from_scratch: true });
  }

  /** Asks the server for something, and says what came of it; whether it is done. */
  async #ask(method, below, done, body) {
    // A button that is disabled for a moment would lose the reader's focus.
    if (this.#acting) return false;
    this.#acting = true;
    try {
      await json(`pipelines/${encodeURIComponent(this.#name)}${below}`, {
        method,
        body,
        headers: { "Content-Type": "application/json" },
      });
      this.#tools.say(`${this.#name} ${done}.`);
      return true;
    } catch (problem) {
      this.#tools.say(said(problem));
      return false;
    } finally {
      this.#acting = false;
      if (below !== "/forget") this.load();
    }
  }
}

/** A pipeline's state in a word and a colour. */
export function state(name) {
  return h("span", { className: "pill", "data-state": name }, name);
}

function aboutProcess(pipeline) {
  const { pid, host, started, ended, restarts, maintenance } = pipeline;
  const parts = [
    pid ? `process ${pid}${host ? ` on ${host}` : ""}` : null,
    `started ${since(started)}`,
    ended ? `ended ${since(ended)}` : null,
  ];
  if (restarts) parts.push(`began anew ${count(restarts, "time")} within an hour`);
  if (maintenance)
    parts.push(
      maintenance.busy
        ? `looking after ${count(maintenance.busy, "table")} now`
        : "tables are looked after",
    );
  if (maintenance?.last_error) parts.push(`last trouble there: ${maintenance.last_error}`);
  return parts.filter(Boolean).join(" · ");
}

function listOf(answer) {
  return Array.isArray(answer) ? answer : (answer.pipelines ?? []);
}

function figure(name, text) {
  return h("div", {}, h("dt", {}, name), h("dd", {}, text));
}

function errorOf(pipeline) {
  return (
    pipeline.last_error ??
    pipeline.error ??
    (pipeline.queries ?? []).find((query) => query.last_error)?.last_error ??
    null
  );
}

function rateOf({ rows_per_second: rate }) {
  if (rate === null || rate === undefined) return "–";
  return rate > 0 && rate < 10 ? rate.toFixed(1) : whole(Math.round(rate));
}

/** The largest lag of these queries, in what their sources can tell. */
function lagOf(queries) {
  const lags = queries.map((query) => query.lag).filter((lag) => lag !== null && lag !== undefined);
  const most = (name) =>
    Math.max(-1, ...lags.map((lag) => (typeof lag === "object" ? (lag[name] ?? -1) : -1)));
  const hidden = most("waiting_rows");
  const waiting = hidden > 0 ? ` (${count(hidden, "row")} to compact)` : "";
  for (const [name, text] of [
    ["seconds", (lag) => `${lag < 10 ? lag.toFixed(1) : whole(Math.round(lag))} s`],
    ["rows", (lag) => count(lag, "row")],
    ["snapshots", (lag) => count(lag, "snapshot")],
    ["bytes", (lag) => `${whole(Math.ceil(lag / 1024))} KB`],
  ]) {
    const found = most(name);
    if (found >= 0) return text(found) + waiting;
  }
  return waiting ? waiting.trim() : "–";
}

function since(time) {
  const ms = Date.parse(time ?? "");
  return Number.isNaN(ms) ? "–" : ago(serverNow() - ms);
}
