// One pipeline: its state, its queries, the graph of its script, and its log.

import { count, whole } from "../format/numbers.js";
import { drawGraph } from "../graph/script-graph.js";
import { messageOf, problemOf } from "../server/errors.js";
import { request } from "../server/requests.js";
import { pipelinePath } from "../server/urls.js";
import { renew } from "../ui/dom-diff.js";
import { h, put, say } from "../ui/dom.js";
import { stateLabel } from "../ui/state-label.js";
import { errorOf, lagOf, rateOf, since } from "./pipeline-metrics.js";

/** @typedef {import("../server/responses.d.ts").Graph} Graph */
/** @typedef {import("../server/responses.d.ts").PipelineRecord} PipelineRecord */
/** @typedef {import("../server/responses.d.ts").QueryRecord} QueryRecord */
/** @typedef {(table: string) => string | null} Link the address of a table's view */

const HEADS = ["query", "rows/s", "lag", "batches", "last batch", "duration", "last error"];
const NUMBERS = new Set(["rows/s", "lag", "batches", "duration"]);
const LOG_LINES = 200;

export class PipelineDetails {
  #link;
  #state = h("p", { className: "state-line" });
  #error = h("p", { className: "error-line", role: "status" });
  #queries = h("tbody");
  #graph = h("div", {
    className: "graph-scroll",
    role: "region",
    tabIndex: 0,
    "aria-label": "Graph of the script",
  });

  #plans = h("div");

  /**
   * Builds the elements in `body`; `show` fills in the figures.
   * @param {HTMLElement} body
   * @param {PipelineRecord} pipeline
   * @param {Link} link
   */
  constructor(body, { name, script, startable }, link) {
    this.#link = link;
    const heads = HEADS.map((head) =>
      h("th", { scope: "col", className: NUMBERS.has(head) ? "number" : "" }, head),
    );
    const table = h(
      "table",
      { className: "plain" },
      h("thead", {}, h("tr", {}, heads)),
      this.#queries,
    );
    put(
      body,
      this.#state,
      this.#error,
      this.#graph,
      h(
        "div",
        { className: "plain-scroll", role: "region", tabIndex: 0, "aria-label": "Queries" },
        table,
      ),
      this.#plans,
      script ? folded("Script", h("code", {}, script)) : null,
      startable ? log(name) : null,
    );
  }

  /**
   * @param {PipelineRecord} pipeline
   * @param {Graph | null} graph
   */
  show(pipeline, graph) {
    const about = h("span", { className: "soft" }, aboutProcess(pipeline));
    renew(this.#state, stateLabel(pipeline.state), about);
    say(this.#error, errorOf(pipeline) ?? "");
    renew(
      this.#queries,
      pipeline.queries.map((query) => this.#row(query)),
    );
    if (!graph?.nodes.length) return;
    renew(this.#graph, drawGraph(graph, this.#link, notesOf(pipeline, graph)));
    // A tree that is unfolded stays so: the script does not change while it runs.
    if (!this.#plans.hasChildNodes()) put(this.#plans, ...plansOf(graph));
  }

  /** @param {QueryRecord} query */
  #row(query) {
    const { target, batches, last_batch: last, last_batch_ms: took, last_error: error } = query;
    const note = query.refresh || query.state_bytes ? howOld(query) : "";
    const to = this.#link(target);
    return h(
      "tr",
      {},
      h("th", { scope: "row" }, to ? h("a", { href: to }, target) : target, h("span", { className: "soft" }, note)),
      number(rateOf(query)),
      number(lagOf([query])),
      number(whole(batches)),
      h("td", {}, since(last)),
      number(took === null ? "–" : `${whole(took)} ms`),
      h("td", { className: error ? "error-text" : "" }, error ?? "none"),
    );
  }
}

/**
 * How a view was refreshed last, whether it has all rows of its inputs, and what a query keeps.
 * @param {QueryRecord} query
 */
function howOld({ refresh, strategy, view_rows: rows, state_bytes: bytes }) {
  const current = refresh?.current;
  const state = current == null ? null : current ? "current" : "inputs are newer";
  const kept = bytes ? `keeps ${whole(Math.ceil(bytes / 1024))} KB` : null;
  const parts = [refresh ? strategy : null, rows == null ? null : count(rows, "row"), state, kept];
  return ` ${parts.filter(Boolean).join(" · ")}`;
}

/**
 * The trees of operators of a script's views, folded, as EXPLAIN draws them.
 * @param {Graph} graph
 */
function plansOf({ nodes, edges }) {
  return nodes.flatMap((node) => {
    if (!("plan" in node) || !node.plan.length) return [];
    const view = edges.find(({ kind, from }) => kind === "writes" && from === node.id)?.to;
    return [folded(`Operators of ${view ?? node.name}`, h("code", {}, node.plan.join("\n")))];
  });
}

/** @param {string} text */
function number(text) {
  return h("td", { className: "number" }, text);
}

/**
 * Rate and lag of running queries, by the ids of their nodes.
 * @param {PipelineRecord} pipeline
 * @param {Graph} graph
 */
function notesOf(pipeline, { edges }) {
  /** @type {Map<string, string[]>} */
  const notes = new Map();
  if (pipeline.state !== "running") return notes;
  for (const query of pipeline.queries) {
    const edge = edges.find(({ kind, to }) => kind === "writes" && to === query.target);
    if (edge) notes.set(edge.from, [`${rateOf(query)} rows/s · lag ${lagOf([query])}`]);
  }
  return notes;
}

/** @param {PipelineRecord} pipeline */
function aboutProcess({ pid, host, started, ended, restarts, maintenance }) {
  const parts = [
    pid ? `process ${pid}${host ? ` on ${host}` : ""}` : null,
    `started ${since(started)}`,
    ended ? `ended ${since(ended)}` : null,
  ];
  if (restarts) parts.push(`restarted ${count(restarts, "time")} within an hour`);
  if (maintenance)
    parts.push(
      maintenance.busy
        ? `maintaining ${count(maintenance.busy, "table")} now`
        : "table maintenance is idle",
    );
  if (maintenance?.last_error) parts.push(`last maintenance error: ${maintenance.last_error}`);
  return parts.filter(Boolean).join(" · ");
}

/**
 * The end of the pipeline's log, loaded when it is unfolded.
 * @param {string} name
 */
function log(name) {
  const text = h("code");
  const details = folded("Log", text);
  const load = async () => {
    try {
      const response = await request(pipelinePath(name, `/log?lines=${LOG_LINES}`));
      const body = await response.text();
      const shownText = response.ok ? body : problemOf(response.status, body).message;
      say(text, shownText || "The log is empty.");
    } catch (problem) {
      say(text, messageOf(problem));
    }
  };
  details.addEventListener("toggle", () => details.open && load());
  return details;
}

/**
 * @param {string} title
 * @param {HTMLElement} text
 */
function folded(title, text) {
  return h("details", { className: "script" }, h("summary", {}, title), h("pre", {}, text));
}
