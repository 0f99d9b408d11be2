// The script editor: line numbers, colours, errors at their place; checks, starts and stops.

import { json, said } from "./server.js";
import { h, put, say } from "./dom.js";
import { count } from "./format.js";
import { draw } from "./graph.js";
import { goTo, mistake } from "./place.js";
import { state } from "./pipelines.js";

const SCRIPT = "streamhouse.script";
const NAME = "streamhouse.script.name";
const NAMES = "[a-z0-9_\\-]{1,64}";
const EVERY_MS = 3000;
const TOKENS =
  /(?<comment>--[^\n]*|\/\*[^]*?(?:\*\/|$))|(?<string>'(?:[^']|'')*'?)|(?<quoted>`[^`]*`?)|(?<number>\b\d+(?:\.\d+)?\b)|(?<word>\b[A-Za-z_]\w*\b)/g;
const KEYWORDS = new Set(
  (
    "ADD ALL ALTER AND ANTI AS ASC BEGIN BETWEEN BY CALL CASE CAST CATALOG COLUMN CONSTRAINT CREATE CROSS DATABASE DELETE DESC DESCRIBE DISTINCT DROP ELSE END " +
    "ENFORCED EXECUTE EXISTS FALSE FOR FROM FULL GROUP HAVING IF IN INNER INSERT INTERVAL INTO IS JOIN KEY LEFT LIKE LIMIT MATCHED MERGE NOT NULL OF ON OR ORDER " +
    "OUTER OVERWRITE PARTITION PARTITIONED PRIMARY RENAME RESET RIGHT SELECT SET SHOW SOURCE STATEMENT SYSTEM_TIME TABLE TEMPORARY THEN TO TRUE UNION UPDATE USE " +
    "USING VALUES VIEW WATERMARK WHEN WHERE WITH ARRAY BIGINT BINARY BOOLEAN BYTES CHAR DATE DECIMAL DOUBLE FLOAT INT MAP PROCTIME ROW SMALLINT STRING TIME TIMESTAMP " +
    "TIMESTAMP_LTZ TINYINT VARCHAR"
  ).split(" "),
);
const EXAMPLE = `-- Orders are made up; what each customer has spent is kept up to date.
CREATE DATABASE IF NOT EXISTS shop;
USE shop;

CREATE TEMPORARY TABLE order_source (customer_id INT, price DOUBLE) WITH (
  'connector' = 'datagen', 'rows-per-second' = '100',
  'fields.customer_id.min' = '1', 'fields.customer_id.max' = '8',
  'fields.price.min' = '1', 'fields.price.max' = '100'
);

CREATE TABLE IF NOT EXISTS spending (
  customer_id INT PRIMARY KEY NOT ENFORCED, orders BIGINT, total DOUBLE
) WITH (
  'merge-engine' = 'aggregation',
  'fields.orders.aggregate-function' = 'sum',
  'fields.total.aggregate-function' = 'sum'
);

INSERT INTO spending
SELECT customer_id, COUNT(*), SUM(price) FROM order_source GROUP BY customer_id;
`;
const RUN_REFUSED =
  "Here scripts are only checked. To run them takes a server that was started with --allow-run, and a token that allows it.";
const STARS = /(?<![*/])\*{4}(?![*/])/;
const STARRED =
  "**** stands for a password or key, which is not shown. Leave it, and the pipeline of this name goes on with its own; or write a new one.";

/** `allowed` promises whether the server runs scripts: true, false, or null where it does not say. */
export class Editor {
  #timer;
  #link;
  #error = null;

  constructor(main, link, tell, allowed) {
    this.#link = link;
    this.tell = tell;
    this.name = h("input", {
      id: "script-name",
      value: sessionStorage.getItem(NAME) ?? "spending",
      pattern: NAMES,
      required: true,
      spellcheck: false,
      autocomplete: "off",
      title: "Small letters, digits, _ and -, up to 64",
      oninput: () => this.#look(),
    });
    this.check = h("button", { type: "button", onclick: () => this.#check() }, "Check");
    this.run = h("button", { type: "submit", className: "main-button" }, "Run");
    this.stop = h("button", { type: "button", hidden: true, onclick: () => this.#stop() }, "Stop");
    this.state = h("span", { className: "editor-state" });
    this.hint = h("p", { className: "notice", hidden: true }, RUN_REFUSED);
    this.stars = h("p", { className: "notice", hidden: true }, STARRED);
    const form = h(
      "form",
      { className: "editor-bar", onsubmit: (event) => this.#run(event) },
      h("label", { htmlFor: "script-name" }, "Name"),
      this.name,
      this.check,
      this.run,
      this.stop,
      this.state,
    );
    this.result = h("div", { className: "result", role: "status", "aria-live": "polite" });
    this.graph = h("div", {
      className: "graph-scroll",
      role: "region",
      tabIndex: 0,
      "aria-label": "Graph of the script",
      hidden: true,
    });
    put(
      main,
      h(
        "header",
        { className: "head" },
        h(
          "div",
          { className: "titles" },
          h("h1", {}, "Editor"),
          h(
            "p",
            { className: "soft" },
            "A script in Flink's SQL; each INSERT over a stream runs until it is stopped",
          ),
        ),
      ),
      h(
        "div",
        { className: "editor" },
        form,
        this.hint,
        this.stars,
        this.#frame(),
        this.result,
        this.graph,
      ),
    );
    allowed.then((may) => this.#mayRun(may !== false));
    this.#paint();
    this.#look();
    this.#timer = setInterval(() => document.hidden || this.#look(), EVERY_MS);
  }

  close() {
    clearInterval(this.#timer);
  }

  #mayRun(may) {
    this.hint.hidden = may;
    this.run.disabled = !may;
  }

  #frame() {
    const text = sessionStorage.getItem(SCRIPT) ?? EXAMPLE;
    this.lines = h("div", { className: "code-lines", "aria-hidden": "true" });
    this.colours = h("pre", { className: "code-colours", "aria-hidden": "true" });
    this.text = h("textarea", {
      className: "code-text",
      value: text,
      wrap: "off",
      spellcheck: false,
      autocomplete: "off",
      autocapitalize: "off",
      "aria-label": "Script",
      oninput: () => this.#changed(),
      onscroll: () => this.#follow(),
    });
    return h(
      "div",
      { className: "code" },
      this.lines,
      h("div", { className: "code-area" }, this.colours, this.text),
    );
  }

  #changed() {
    sessionStorage.setItem(SCRIPT, this.text.value);
    this.#error = null;
    this.text.removeAttribute("aria-invalid");
    this.#paint();
  }

  #follow() {
    this.colours.style.transform = `translate(${-this.text.scrollLeft}px, ${-this.text.scrollTop}px)`;
    this.lines.style.transform = `translateY(${-this.text.scrollTop}px)`;
  }

  #paint() {
    const text = this.text.value;
    this.stars.hidden = !STARS.test(text);
    const parts = [];
    let end = 0;
    for (const found of text.matchAll(TOKENS)) {
      const kind = Object.entries(found.groups).find(([, value]) => value !== undefined)[0];
      if (kind === "word" && !KEYWORDS.has(found[0].toUpperCase())) continue;
      parts.push(text.slice(end, found.index), h("span", { className: `tok-${kind}` }, found[0]));
      end = found.index + found[0].length;
    }
    put(this.colours, parts, `${text.slice(end)}\n`);
    const lines = text.split("\n").length;
    put(
      this.lines,
      Array.from({ length: lines }, (_, at) =>
        h("span", { className: this.#error?.line === at + 1 ? "wrong" : "" }, String(at + 1)),
      ),
    );
    this.#follow();
  }

  async #check() {
    this.check.disabled = true;
    put(this.result, h("p", { className: "hint" }, "Checking …"));
    try {
      const answer = await json("scripts/check", {
        method: "POST",
        body: { sql: this.text.value },
      });
      if (answer.ok) this.#good(answer);
      else this.#wrong(answer.error ?? { message: "The script is not valid." });
      return answer.ok === true;
    } catch (problem) {
      this.#wrong({ ...problem.more, message: said(problem) });
      return false;
    } finally {
      this.check.disabled = false;
    }
  }

  #good({ statements, graph }) {
    this.#error = null;
    this.#paint();
    put(
      this.result,
      h("p", { className: "good" }, `The script is valid: ${count(statements ?? 0, "statement")}.`),
    );
    this.graph.hidden = !graph?.nodes?.length;
    if (!this.graph.hidden) put(this.graph, draw(graph, { link: (node) => this.#link(node.id) }));
  }

  #wrong(problem) {
    const { line, column } = problem;
    this.#error = line ? { line, column: column ?? 1 } : null;
    this.#paint();
    put(this.result, mistake(this.text, problem));
    this.graph.hidden = true;
    if (!line) return;
    this.text.setAttribute("aria-invalid", "true");
    goTo(this.text, line, column ?? 1);
  }

  async #run(event) {
    event.preventDefault();
    sessionStorage.setItem(NAME, this.name.value);
    this.run.disabled = true;
    try {
      if (!(await this.#check())) return;
      await json("pipelines", {
        method: "POST",
        body: { name: this.name.value, sql: this.text.value },
      });
      location.hash = `#/pipelines/${encodeURIComponent(this.name.value)}`;
    } catch (problem) {
      if (problem.status === 403) this.#mayRun(false);
      this.#wrong({ ...problem.more, message: said(problem) });
    } finally {
      this.run.disabled = !this.hint.hidden;
    }
  }

  async #stop() {
    this.stop.disabled = true;
    try {
      await json(`pipelines/${encodeURIComponent(this.name.value)}`, {
        method: "DELETE",
        headers: { "Content-Type": "application/json" },
      });
      this.tell(`${this.name.value} is asked to stop between two batches.`);
    } catch (problem) {
      this.#wrong({ message: said(problem) });
    }
    this.stop.disabled = false;
    this.#look();
  }

  /** Whether a pipeline of this name runs. */
  async #look() {
    let found = null;
    try {
      const answer = await json("pipelines");
      found = (answer.pipelines ?? []).find((each) => each.name === this.name.value) ?? null;
    } catch {
      // Said where somebody asks for pipelines.
    }
    const running = found?.state === "running";
    this.stop.hidden = !running || !this.hint.hidden;
    say(this.run, running ? "Running" : "Run");
    this.run.disabled = running || !this.hint.hidden;
    put(this.state, found ? state(found.state) : null);
  }
}
