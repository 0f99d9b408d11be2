// The SQL screen: a SELECT over the views, and its result or its error.

import { count, whole } from "../format/numbers.js";
import { RowStore } from "../rows/row-store.js";
import { sqlErrorOf } from "../server/errors.js";
import { json } from "../server/requests.js";
import { VirtualTable } from "../table/virtual-table.js";
import { h, put, say } from "../ui/dom.js";
import { screenHeader } from "../ui/screen-header.js";
import { errorLine, goTo } from "./error-position.js";

/** @typedef {import("../server/responses.d.ts").Health} Health */
/** @typedef {import("../server/responses.d.ts").SqlResponse} SqlResponse */

const TEXT = "streamhouse.query";
const KEYS = "Ctrl+Enter runs the query.";

/** `view` is the view of the example query; `health` resolves to the response of `/health`. */
export class QueryScreen {
  /** @type {AbortController | null} */
  #request = null;
  /** @type {VirtualTable | null} */
  #table = null;
  #limits = h("span", { className: "soft", id: "query-limits" }, KEYS);
  #result = h("div", { className: "result", role: "status", "aria-live": "polite" });
  #answer = h("section", { className: "rows answer", "aria-label": "Result", hidden: true });
  #text;
  #form;

  /**
   * @param {HTMLElement} main
   * @param {string | null} view
   * @param {Promise<Health | null>} health
   */
  constructor(main, view, health) {
    this.#text = h("textarea", {
      className: "query-text",
      value: sessionStorage.getItem(TEXT) ?? example(view),
      rows: 7,
      spellcheck: false,
      autocomplete: "off",
      autocapitalize: "off",
      "aria-label": "Query",
      "aria-describedby": "query-limits",
      oninput: () => this.#changed(),
      onkeydown: (event) => this.#key(event),
    });
    this.#form = h(
      "form",
      { className: "query", onsubmit: (event) => this.#run(event) },
      this.#text,
      h(
        "div",
        { className: "editor-bar" },
        h("button", { type: "submit", className: "main-button" }, "Run"),
        this.#limits,
      ),
    );
    put(
      main,
      screenHeader("SQL", "One SELECT over the views, in Flink's SQL"),
      h("div", { className: "editor" }, this.#form, this.#result, this.#answer),
    );
    health.then((response) => this.#showLimits(response?.limits));
  }

  close() {
    this.#request?.abort();
    this.#table?.close();
  }

  /** Leaves the text field, so that the page's shortcuts work. */
  escape() {
    if (document.activeElement !== this.#text) return false;
    this.#text.blur();
    return true;
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

  #changed() {
    sessionStorage.setItem(TEXT, this.#text.value);
    this.#text.removeAttribute("aria-invalid");
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    this.#form.requestSubmit();
  }

  /** @param {SubmitEvent} event */
  async #run(event) {
    event.preventDefault();
    if (this.#request) return;
    const request = new AbortController();
    this.#request = request;
    put(this.#result, h("p", { className: "hint" }, "Running …"));
    const began = performance.now();
    try {
      const body = { sql: this.#text.value };
      const response = await json("sql", { method: "POST", body, signal: request.signal });
      this.#show(/** @type {SqlResponse} */ (response), performance.now() - began);
    } catch (problem) {
      if (!request.signal.aborted) this.#wrong(problem);
    } finally {
      this.#request = null;
    }
  }

  /**
   * @param {SqlResponse} response
   * @param {number} ms
   */
  #show({ columns, rows, truncated }, ms) {
    this.#clear();
    const table = new VirtualTable("Result", columns, [], "given");
    table.nothing = "The query returns no rows.";
    this.#table = table;
    const kept = new RowStore(columns, []);
    kept.take({ type: "snapshot", plain: true, rows });
    put(this.#answer, table.element);
    this.#answer.hidden = false;
    table.show(kept);
    const summary = `${count(rows.length, "row")} in ${whole(ms)} ms`;
    const cut = `The first ${summary}; the query has more rows than the server returns.`;
    put(
      this.#result,
      h("p", { className: truncated ? "notice" : "hint" }, truncated ? cut : summary),
    );
  }

  /** @param {unknown} problem */
  #wrong(problem) {
    this.#clear();
    const wrong = sqlErrorOf(problem);
    put(this.#result, errorLine(this.#text, wrong));
    if (!wrong.line) return;
    this.#text.setAttribute("aria-invalid", "true");
    goTo(this.#text, wrong.line, wrong.column ?? 1);
  }

  #clear() {
    this.#text.removeAttribute("aria-invalid");
    this.#answer.hidden = true;
    this.#table?.close();
    this.#table = null;
  }
}

/** @param {string | null} view */
function example(view) {
  if (view === null) return "SELECT 1 AS one";
  const dot = view.indexOf(".");
  const parts = [view.slice(0, dot), view.slice(dot + 1)];
  const name = parts.map((part) => `\`${part.replaceAll("`", "``")}\``).join(".");
  return `SELECT *\nFROM ${name}\nLIMIT 100`;
}
