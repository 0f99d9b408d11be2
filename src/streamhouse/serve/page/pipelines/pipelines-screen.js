// The screen of pipelines: a list of them, or one.

import { whole } from "../format/numbers.js";
import { messageOf, statusOf } from "../server/errors.js";
import { json } from "../server/requests.js";
import { pipelinePath } from "../server/urls.js";
import { renew } from "../ui/dom-diff.js";
import { h, put } from "../ui/dom.js";
import { command, empty, skeleton } from "../ui/placeholder.js";
import { screenHeader } from "../ui/screen-header.js";
import { stateLabel } from "../ui/state-label.js";
import { PipelineActions } from "./pipeline-actions.js";
import { PipelineDetails } from "./pipeline-details.js";
import { errorOf, lagOf, since } from "./pipeline-metrics.js";

/** @typedef {import("../server/responses.d.ts").Graph} Graph */
/** @typedef {import("../server/responses.d.ts").PipelineRecord} PipelineRecord */
/** @typedef {import("../server/responses.d.ts").PipelinesResponse} PipelinesResponse */

/**
 * What the page provides; `lost` shows a lost connection, null removes that.
 * @typedef {Object} PipelineTools
 * @property {import("./pipeline-details.js").Link} link
 * @property {(text: string) => void} say
 * @property {(text: string | null) => void} lost
 */

const EVERY_MS = 2000;

/** Polls the server; while it does not respond, the last state stays on the screen. */
export class PipelinesScreen {
  #name;
  #tools;
  #timer = 0;
  #actions;
  #loading = false;
  #closed = false;
  /** Ends the requests under way when polling stops. */
  #requests = new AbortController();
  /** Whether the screen shows the result of an earlier request. */
  #known = false;
  /** @type {Graph | null} */
  #graph = null;
  /** @type {PipelineDetails | null} */
  #pipeline = null;
  #body = h("div", { className: "pipelines" }, skeleton(8));

  /**
   * `name` is the pipeline to show, null for the list. `allowed` resolves to whether the server
   * runs scripts for this client, null if that is unknown.
   * @param {HTMLElement} main
   * @param {string | null} name
   * @param {PipelineTools} tools
   * @param {Promise<boolean | null>} allowed
   */
  constructor(main, name, tools, allowed) {
    this.#name = name;
    this.#tools = tools;
    this.#actions = new PipelineActions(name ?? "", tools.say, this);
    const before =
      name === null
        ? null
        : h("a", { className: "to-list always", href: "#/pipelines" }, "‹ Pipelines");
    const about =
      name === null
        ? "The scripts that keep the tables of this warehouse up to date"
        : "A script that runs until it is stopped";
    const after = [this.#actions.element];
    const head = screenHeader(name ?? "Pipelines", about, { before, after });
    put(main, head, this.#body);
    allowed.then((may) => this.#actions.allow(may !== false));
    this.start();
  }

  start() {
    this.stop();
    if (this.#closed) return;
    this.#requests = new AbortController();
    this.#load();
    this.#timer = setInterval(() => document.hidden || this.#load(), EVERY_MS);
  }

  /** Stops polling, and ends the requests under way: what they name may be removed next. */
  stop() {
    clearInterval(this.#timer);
    this.#requests.abort();
    this.#loading = false;
  }

  close() {
    this.#closed = true;
    this.stop();
  }

  async #load() {
    if (this.#loading) return;
    this.#loading = true;
    const { signal } = this.#requests;
    try {
      if (this.#name === null) await this.#list(signal);
      else await this.#showOne(this.#name, signal);
      if (!signal.aborted) this.#tools.lost(null);
    } catch (problem) {
      if (!signal.aborted) this.#failed(problem);
    } finally {
      if (!signal.aborted) this.#loading = false;
    }
  }

  /** @param {unknown} problem */
  #failed(problem) {
    if (problem instanceof TypeError && this.#known) {
      this.#tools.lost("the server does not respond");
      return;
    }
    const missing = statusOf(problem) === 404 && this.#name !== null;
    const title = missing ? "No such pipeline" : "The pipelines cannot be shown";
    put(this.#body, empty(title, messageOf(problem)));
    this.#actions.clear();
    this.#pipeline = null;
    this.#known = false;
  }

  /** @param {AbortSignal} signal */
  async #list(signal) {
    const { pipelines } = /** @type {PipelinesResponse} */ (await json("pipelines", { signal }));
    if (!this.#known) put(this.#body);
    this.#known = true;
    const cards = h(
      "ul",
      { className: "cards" },
      pipelines.map((each) => h("li", {}, card(each))),
    );
    renew(this.#body, pipelines.length ? cards : noPipelines());
  }

  /**
   * @param {string} name
   * @param {AbortSignal} signal
   */
  async #showOne(name, signal) {
    const pipeline = /** @type {PipelineRecord} */ (await json(pipelinePath(name), { signal }));
    // A pipeline whose script is unknown has no graph.
    if (pipeline.script && !this.#graph) {
      const graph = json(pipelinePath(name, "/graph"), { signal }).catch(() => null);
      this.#graph = /** @type {Graph | null} */ (await graph);
    }
    signal.throwIfAborted();
    this.#pipeline ??= new PipelineDetails(this.#body, pipeline, this.#tools.link);
    this.#known = true;
    this.#pipeline.show(pipeline, this.#graph);
    this.#actions.show(pipeline);
  }
}

function noPipelines() {
  return empty(
    "No pipeline has run on this warehouse",
    "Start one in a terminal or in the editor:",
    command("streamhouse run script.sql --warehouse …"),
    h("p", {}, h("a", { href: "#/editor", className: "main-button" }, "Open the editor")),
  );
}

/** @param {PipelineRecord} pipeline */
function card(pipeline) {
  const { name, queries, started } = pipeline;
  const rate = queries.reduce((sum, query) => sum + query.rows_per_second, 0);
  const error = errorOf(pipeline);
  return h(
    "a",
    { className: "card", href: `#/pipelines/${encodeURIComponent(name)}` },
    h("div", { className: "card-head" }, stateLabel(pipeline.state), h("strong", {}, name)),
    h(
      "dl",
      { className: "figures" },
      figure("queries", whole(queries.length)),
      figure("rows/s", whole(Math.round(rate))),
      figure("lag", lagOf(queries)),
      figure("started", since(started)),
    ),
    error ? h("p", { className: "error-line" }, error) : null,
  );
}

/**
 * @param {string} name
 * @param {string} text
 */
function figure(name, text) {
  return h("div", {}, h("dt", {}, name), h("dd", {}, text));
}
