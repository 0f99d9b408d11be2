// The buttons that edit, forget, stop and restart a pipeline.

import { keepName, keepScript } from "../editor/script-draft.js";
import { messageOf } from "../server/errors.js";
import { json } from "../server/requests.js";
import { pipelinePath } from "../server/urls.js";
import { confirmed } from "../ui/confirm-dialog.js";
import { h, put } from "../ui/dom.js";

/** @typedef {import("../server/responses.d.ts").PipelineRecord} PipelineRecord */

export class PipelineActions {
  #name;
  #notify;
  #polling;
  /** @type {boolean | null} */
  #mayRun = null;
  /** @type {PipelineRecord | null} */
  #last = null;
  #acting = false;
  element = h("div", { className: "buttons" });

  /**
   * `notify` shows the result of an action, `polling` loads the pipeline.
   * @param {string} name
   * @param {(text: string) => void} notify
   * @param {{ start: () => void, stop: () => void }} polling
   */
  constructor(name, notify, polling) {
    this.#name = name;
    this.#notify = notify;
    this.#polling = polling;
  }

  /**
   * Whether the reader may start and stop pipelines.
   * @param {boolean} may
   */
  allow(may) {
    this.#mayRun = may;
    if (this.#last) this.show(this.#last);
  }

  clear() {
    put(this.element);
    delete this.element.dataset.shown;
    this.#last = null;
  }

  /**
   * Shows the actions that the state of the pipeline allows.
   * @param {PipelineRecord} pipeline
   */
  show(pipeline) {
    this.#last = pipeline;
    const { script, startable } = pipeline;
    const shown = `${pipeline.state} ${this.#mayRun}`;
    if (this.element.dataset.shown === shown) return;
    const hadFocus = this.element.contains(document.activeElement);
    this.element.dataset.shown = shown;
    const running = pipeline.state === "running";
    const may = this.#mayRun ?? false;
    put(
      this.element,
      script ? button("Edit", () => this.#edit(script)) : null,
      may && !running ? button("Forget", () => this.#forget()) : null,
      may && !running && startable
        ? button("Start from scratch", () => this.#startFromScratch())
        : null,
      // The server cannot stop a pipeline that it did not start.
      may && startable ? this.#change(running) : null,
    );
    // The pressed button is gone: keep the focus in this group.
    const last = this.element.lastElementChild;
    if (hadFocus && last instanceof HTMLElement) last.focus();
  }

  /** @param {boolean} running */
  #change(running) {
    if (running)
      return button("Stop", () => this.#send("DELETE", "", "will stop after its current batch"));
    const start = () => this.#send("POST", "/start", "is starting");
    return button("Start again", start, "main-button");
  }

  /** @param {string} script */
  #edit(script) {
    keepScript(script);
    keepName(this.#name);
    location.hash = "#/editor";
  }

  async #forget() {
    const isConfirmed = await confirmed(
      `Forget ${this.#name}?`,
      "This deletes its script, log and status. Its tables and checkpoints stay: the same script under this name resumes where it stopped.",
      "Forget",
    );
    if (!isConfirmed) return;
    // A request for a pipeline that is gone would fail.
    this.#polling.stop();
    if (await this.#send("POST", "/forget", "was forgotten")) location.hash = "#/pipelines";
    else this.#polling.start();
  }

  async #startFromScratch() {
    const isConfirmed = await confirmed(
      `Start ${this.#name} from scratch?`,
      "This deletes all rows of the tables that its queries write, and computes them again from the current sources.",
      "Delete and start",
    );
    if (isConfirmed)
      await this.#send("POST", "/start", "is starting from scratch", { from_scratch: true });
  }

  /**
   * Sends an action to the server and shows its result; returns whether it succeeded.
   * @param {string} method
   * @param {string} below
   * @param {string} done
   * @param {{ from_scratch: boolean }} [body]
   */
  async #send(method, below, done, body) {
    // Not by `disabled`, which would drop the focus of the button.
    if (this.#acting) return false;
    this.#acting = true;
    try {
      await json(pipelinePath(this.#name, below), {
        method,
        body,
        headers: { "Content-Type": "application/json" },
      });
      this.#notify(`${this.#name} ${done}.`);
      return true;
    } catch (problem) {
      this.#notify(messageOf(problem));
      return false;
    } finally {
      this.#acting = false;
      if (below !== "/forget") this.#polling.start();
    }
  }
}

/**
 * @param {string} text
 * @param {() => void} onclick
 */
function button(text, onclick, className = "") {
  return h("button", { type: "button", className, onclick }, text);
}
