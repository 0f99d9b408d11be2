// The script editor: checks a script, shows its errors and its graph, starts and stops it.

import { count } from "../format/numbers.js";
import { drawGraph } from "../graph/script-graph.js";
import { messageOf, sqlErrorOf, statusOf } from "../server/errors.js";
import { json } from "../server/requests.js";
import { pipelinePath } from "../server/urls.js";
import { CodeEditor } from "../sql/code-editor.js";
import { errorLine } from "../sql/error-position.js";
import { h, put, say } from "../ui/dom.js";
import { screenHeader } from "../ui/screen-header.js";
import { stateLabel } from "../ui/state-label.js";
import { EXAMPLE } from "./example-script.js";
import { draft, keepName, keepScript } from "./script-draft.js";

/** @typedef {import("../server/errors.js").SqlError} SqlError */
/** @typedef {import("../server/responses.d.ts").CheckResult} CheckResult */
/** @typedef {import("../server/responses.d.ts").Graph} Graph */
/** @typedef {import("../server/responses.d.ts").PipelinesResponse} PipelinesResponse */

const NAMES = "[a-z0-9_\\-]{1,64}";
const EVERY_MS = 3000;
const RUN_REFUSED =
  "You can only check scripts here. To run them, the server must be started with --allow-run, and your token must allow it.";
const STARS = /(?<![*/])\*{4}(?![*/])/;
const STARRED =
  "**** masks a password or key. Leave it to keep the one that this pipeline has, or write a new one.";

export class ScriptEditor {
  #timer;
  #link;
  #notify;
  #name;
  #code;
  #check = h("button", { type: "button", onclick: () => this.#checked() }, "Check");
  #run = h("button", { type: "submit", className: "main-button" }, "Run");
  #stop = h("button", { type: "button", hidden: true, onclick: () => this.#endPipeline() }, "Stop");
  #state = h("span", { className: "editor-state" });
  #refused = h("p", { className: "notice", hidden: true }, RUN_REFUSED);
  #stars = h("p", { className: "notice", hidden: true }, STARRED);
  #result = h("div", { className: "result", role: "status", "aria-live": "polite" });
  #graph = h("div", {
    className: "graph-scroll",
    role: "region",
    tabIndex: 0,
    "aria-label": "Graph of the script",
    hidden: true,
  });

  /**
   * `notify` shows a message. `allowed` resolves to whether the server runs scripts, null if that is
   * unknown.
   * @param {HTMLElement} main
   * @param {(table: string) => string | null} link the address of a table's view
   * @param {(text: string) => void} notify
   * @param {Promise<boolean | null>} allowed
   */
  constructor(main, link, notify, allowed) {
    const { name, script } = draft();
    this.#link = link;
    this.#notify = notify;
    this.#code = new CodeEditor("Script", script ?? EXAMPLE, () => this.#changed());
    this.#name = h("input", {
      id: "script-name",
      value: name ?? "spending",
      pattern: NAMES,
      required: true,
      spellcheck: false,
      autocomplete: "off",
      title: "1 to 64 lower-case letters, digits, _ and -",
      oninput: () => this.#updateState(),
    });
    const form = h(
      "form",
      { className: "editor-bar", onsubmit: (event) => this.#submitted(event) },
      h("label", { htmlFor: "script-name" }, "Name"),
      this.#name,
      this.#check,
      this.#run,
      this.#stop,
      this.#state,
    );
    put(
      main,
      screenHeader(
        "Editor",
        "A script in Flink's SQL; each INSERT over a stream runs until it is stopped",
      ),
      h(
        "div",
        { className: "editor" },
        form,
        this.#refused,
        this.#stars,
        this.#code.element,
        this.#result,
        this.#graph,
      ),
    );
    allowed.then((may) => this.#mayRun(may !== false));
    this.#updateStars();
    this.#updateState();
    this.#timer = setInterval(() => document.hidden || this.#updateState(), EVERY_MS);
  }

  close() {
    clearInterval(this.#timer);
  }

  /** @param {boolean} may */
  #mayRun(may) {
    this.#refused.hidden = may;
    this.#run.disabled = !may;
  }

  #changed() {
    keepScript(this.#code.area.value);
    this.#updateStars();
  }

  #updateStars() {
    this.#stars.hidden = !STARS.test(this.#code.area.value);
  }

  /** Checks the script and shows the result; returns whether it is valid. */
  async #checked() {
    this.#check.disabled = true;
    put(this.#result, h("p", { className: "hint" }, "Checking …"));
    try {
      const body = { sql: this.#code.area.value };
      const found = await json("scripts/check", { method: "POST", body });
      const response = /** @type {CheckResult} */ (found);
      if (response.ok) this.#good(response.statements, response.graph);
      else this.#wrong(response.error);
      return response.ok;
    } catch (problem) {
      this.#wrong(sqlErrorOf(problem));
      return false;
    } finally {
      this.#check.disabled = false;
    }
  }

  /**
   * @param {number} statements
   * @param {Graph} graph
   */
  #good(statements, graph) {
    this.#code.mark(0);
    put(
      this.#result,
      h("p", { className: "good" }, `The script is valid: ${count(statements, "statement")}.`),
    );
    this.#graph.hidden = !graph.nodes.length;
    if (!this.#graph.hidden) put(this.#graph, drawGraph(graph, this.#link));
  }

  /** @param {SqlError} wrong */
  #wrong(wrong) {
    const { line, column } = wrong;
    this.#code.mark(line ?? 0);
    put(this.#result, errorLine(this.#code.area, wrong));
    this.#graph.hidden = true;
    if (line) this.#code.show(line, column ?? 1);
  }

  /** @param {SubmitEvent} event */
  async #submitted(event) {
    event.preventDefault();
    keepName(this.#name.value);
    this.#run.disabled = true;
    try {
      if (!(await this.#checked())) return;
      const body = { name: this.#name.value, sql: this.#code.area.value };
      await json("pipelines", { method: "POST", body });
      location.hash = `#/pipelines/${encodeURIComponent(this.#name.value)}`;
    } catch (problem) {
      if (statusOf(problem) === 403) this.#mayRun(false);
      this.#wrong(sqlErrorOf(problem));
    } finally {
      this.#run.disabled = !this.#refused.hidden;
    }
  }

  async #endPipeline() {
    this.#stop.disabled = true;
    try {
      await json(pipelinePath(this.#name.value), {
        method: "DELETE",
        headers: { "Content-Type": "application/json" },
      });
      this.#notify(`${this.#name.value} will stop after its current batch.`);
    } catch (problem) {
      this.#wrong({ message: messageOf(problem) });
    }
    this.#stop.disabled = false;
    this.#updateState();
  }

  /** Shows whether a pipeline of this name is running. */
  async #updateState() {
    let found;
    try {
      const { pipelines } = /** @type {PipelinesResponse} */ (await json("pipelines"));
      found = pipelines.find((each) => each.name === this.#name.value);
    } catch {
      // The screen of the pipelines shows this error; here the state is optional.
    }
    const running = found?.state === "running";
    this.#stop.hidden = !running || !this.#refused.hidden;
    say(this.#run, running ? "Running" : "Run");
    this.#run.disabled = running || !this.#refused.hidden;
    put(this.#state, found ? stateLabel(found.state) : null);
  }
}
