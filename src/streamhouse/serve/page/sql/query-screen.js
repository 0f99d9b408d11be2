// The SQL screen: a SELECT over the views, and its result or its error.

import { count, whole } from "../format/numbers.js";
import { sqlErrorOf } from "../server/errors.js";
import { json } from "../server/requests.js";
import { select, tableOf } from "../server/view-query.js";
import { h, put, say } from "../ui/dom.js";
import { screenHeader } from "../ui/screen-header.js";
import { CodeEditor } from "./code-editor.js";
import { Completion } from "./completion.js";
import { errorLine } from "./error-position.js";
import { forgetQueries, lastQueries, rememberQuery } from "./query-history.js";
import { QueryResult } from "./query-result.js";
import { showSchema } from "./schema-tree.js";

/** @typedef {import("../server/responses.d.ts").Health} Health */
/** @typedef {import("../server/responses.d.ts").SqlResponse} SqlResponse */
/** @typedef {import("../server/responses.d.ts").ViewRecord} ViewRecord */

/**
 * What the page provides: `views` returns the views of the list, null until it has been loaded, and
 * `ready` resolves when it has been; `health` resolves to the response of `/health`.
 * @typedef {Object} QueryTools
 * @property {() => ViewRecord[] | null} views
 * @property {Promise<void>} ready
 * @property {Promise<Health | null>} health
 * @property {(text: string) => void} say
 */

const TEXT = "streamhouse.query";
const KEYS = "Ctrl+Enter runs the query, Ctrl+Space completes a name.";
const TICK_MS = 100;

export class QueryScreen {
  /** @type {AbortController | null} */
  #request = null;
  /** @type {QueryResult | null} */
  #shown = null;
  #tools;
  #ticks = 0;
  #closed = false;
  #limits = h("span", { className: "soft", id: "query-limits" }, KEYS);
  #result = h("div", { className: "result", role: "status", "aria-live": "polite" });
  #answer = h("div", { className: "answer-place" });
  #schema = h("aside", { className: "schema", "aria-label": "Schema" });
  #elapsed = h("span", { className: "soft" });
  #run = h("button", { type: "submit", className: "main-button" }, "Run");
  #cancel = h(
    "button",
    { type: "button", hidden: true, onclick: () => this.#request?.abort() },
    "Cancel",
  );
  #history = h("select", { "aria-label": "Last queries", onchange: () => this.#recall() });
  #editor;
  #completion;
  #form;

  /**
   * `view` is the view of the example query.
   * @param {HTMLElement} main
   * @param {string | null} view
   * @param {QueryTools} tools
   */
  constructor(main, view, tools) {
    this.#tools = tools;
    this.#editor = new CodeEditor("Query", sessionStorage.getItem(TEXT) ?? example(view), () =>
      sessionStorage.setItem(TEXT, this.#editor.area.value),
    );
    const { area } = this.#editor;
    area.setAttribute("aria-describedby", "query-limits");
    area.addEventListener("keydown", (event) => this.#key(event));
    this.#completion = new Completion(
      area,
      () => tools.views() ?? [],
      () => this.#editor.edited(),
    );
    this.#form = h(
      "form",
      { className: "query", onsubmit: (event) => this.#submitted(event) },
      this.#editor.element,
      this.#completion.element,
      h(
        "div",
        { className: "editor-bar" },
        this.#run,
        this.#cancel,
        this.#history,
        this.#elapsed,
        this.#limits,
      ),
    );
    put(
      main,
      screenHeader("SQL", "One SELECT over the views, in Flink's SQL"),
      h(
        "div",
        { className: "workbench" },
        this.#schema,
        h("div", { className: "editor" }, this.#form, this.#result, this.#answer),
      ),
    );
    this.#listHistory();
    this.#showSchema();
    tools.ready.then(() => this.#closed || this.#showSchema());
    tools.health.then((response) => this.#showLimits(response?.limits));
    this.#warm();
  }

  close() {
    this.#closed = true;
    clearInterval(this.#ticks);
    this.#request?.abort();
    this.#shown?.close();
  }

  /** Leaves the text field, so that the page's shortcuts work. */
  escape() {
    if (document.activeElement !== this.#editor.area) return false;
    this.#editor.area.blur();
    return true;
  }

  /** Has the server start the process that runs queries, which takes seconds, before the first. */
  async #warm() {
    await this.#tools.ready;
    if (!this.#closed) select("SELECT 1 AS one").catch(() => null);
  }

  #showSchema() {
    showSchema(this.#schema, this.#tools.views(), (name) => {
      const { area } = this.#editor;
      area.setRangeText(name, area.selectionStart, area.selectionEnd, "end");
      this.#editor.edited();
      area.focus();
    });
  }

  /** @param {Health["limits"]} limits */
  #showLimits(limits) {
    if (!limits) return;
    const { query_seconds: seconds, query_rows: rows } = limits;
    say(
      this.#limits,
      `${KEYS} It may take up to ${seconds} s and return up to ${count(rows, "row")}.`,
    );
  }

  #listHistory() {
    const queries = lastQueries();
    put(
      this.#history,
      h("option", { value: "" }, "Last queries"),
      queries.map((sql, at) => h("option", { value: at }, sql.replace(/\s+/g, " ").slice(0, 80))),
      queries.length ? h("option", { value: "forget" }, "Forget them all") : null,
    );
    this.#history.disabled = !queries.length;
  }

  #recall() {
    const chosen = this.#history.value;
    if (chosen === "forget") forgetQueries();
    else if (chosen) {
      this.#editor.area.value = lastQueries()[Number(chosen)] ?? "";
      this.#editor.edited();
      this.#editor.area.focus();
    }
    this.#listHistory();
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    if (this.#completion.key(event)) {
      event.preventDefault();
      event.stopPropagation();
    } else if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      this.#completion.close();
      this.#form.requestSubmit();
    }
  }

  /** @param {SubmitEvent} event */
  async #submitted(event) {
    event.preventDefault();
    if (this.#request) return;
    const request = new AbortController();
    this.#request = request;
    const sql = this.#editor.area.value;
    rememberQuery(sql);
    this.#listHistory();
    put(this.#result, h("p", { className: "hint" }, "Running …"));
    const began = performance.now();
    this.#running(began);
    try {
      const response = await json("sql", { method: "POST", body: { sql }, signal: request.signal });
      this.#show(sql, /** @type {SqlResponse} */ (response), performance.now() - began);
    } catch (problem) {
      if (!request.signal.aborted) this.#wrong(problem);
      else put(this.#result, h("p", { className: "hint" }, "The query was cancelled."));
    } finally {
      this.#request = null;
      this.#running(null);
    }
  }

  /** @param {number | null} began when the query began to run; null if it has ended */
  #running(began) {
    clearInterval(this.#ticks);
    this.#run.disabled = began !== null;
    this.#cancel.hidden = began === null;
    say(this.#elapsed, "");
    if (began === null) return;
    this.#ticks = setInterval(
      () => say(this.#elapsed, `${((performance.now() - began) / 1000).toFixed(1)} s`),
      TICK_MS,
    );
  }

  /**
   * @param {string} sql
   * @param {SqlResponse} response
   * @param {number} ms
   */
  #show(sql, response, ms) {
    this.#clear();
    this.#shown = new QueryResult(sql, response, this.#tools.say);
    put(this.#answer, this.#shown.element);
    const summary = `${count(response.rows.length, "row")} in ${whole(ms)} ms`;
    const cut = `The first ${summary}; the query has more rows than the server returns.`;
    put(
      this.#result,
      h(
        "p",
        { className: response.truncated ? "notice" : "hint" },
        response.truncated ? cut : summary,
      ),
    );
  }

  /** @param {unknown} problem */
  #wrong(problem) {
    this.#clear();
    const wrong = sqlErrorOf(problem);
    put(this.#result, errorLine(this.#editor.area, wrong));
    if (!wrong.line) return;
    this.#editor.mark(wrong.line);
    this.#editor.show(wrong.line, wrong.column ?? 1);
  }

  #clear() {
    this.#editor.area.removeAttribute("aria-invalid");
    this.#editor.mark(0);
    put(this.#answer);
    this.#shown?.close();
    this.#shown = null;
  }
}

/** @param {string | null} view */
function example(view) {
  if (view === null) return "SELECT 1 AS one";
  return `SELECT *\nFROM ${tableOf(view)}\nLIMIT 100`;
}
