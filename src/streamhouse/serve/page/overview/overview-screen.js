// The overview: how pipelines, views and the server are, sorted by trouble.

import { count, whole } from "../format/numbers.js";
import { ago } from "../format/times.js";
import { errorOf, lagOf, since } from "../pipelines/pipeline-metrics.js";
import { messageOf } from "../server/errors.js";
import { samplesOf } from "../server/prometheus.js";
import { json, request } from "../server/requests.js";
import { serverNow } from "../server/server-clock.js";
import { renew } from "../ui/dom-diff.js";
import { h, put } from "../ui/dom.js";
import { skeleton } from "../ui/placeholder.js";
import { screenHeader } from "../ui/screen-header.js";
import { stateLabel } from "../ui/state-label.js";
import { byAge, byTrouble, lagSeconds } from "./trouble-order.js";

/** @typedef {import("../server/prometheus.js").Sample} Sample */
/** @typedef {import("../server/responses.d.ts").Health} Health */
/** @typedef {import("../server/responses.d.ts").PipelineRecord} PipelineRecord */
/** @typedef {import("../server/responses.d.ts").PipelinesResponse} PipelinesResponse */
/** @typedef {import("../server/responses.d.ts").ViewRecord} ViewRecord */
/** @typedef {import("../ui/dom.js").Child} Child */

/**
 * A part of the overview that the server refuses or cannot read, with the reason.
 * @template T
 * @typedef {{ found: T, problem?: undefined } | { found?: undefined, problem: string }} Part
 */

const EVERY_MS = 2000;
const MOST_VIEWS = 30;

export class OverviewScreen {
  #views;
  #health;
  #timer;
  #stop = new AbortController();
  #loading = false;
  #body = h("div", { className: "overview" }, skeleton(10));
  #known = false;

  /**
   * `views` returns the views of the list, null until it has been loaded; `health` resolves to the
   * response of `/health`.
   * @param {HTMLElement} main
   * @param {() => ViewRecord[] | null} views
   * @param {Promise<Health | null>} health
   * @param {(text: string | null) => void} lost
   */
  constructor(main, views, health, lost) {
    this.#views = views;
    this.#health = health;
    put(
      main,
      screenHeader("Overview", "What runs on this warehouse, sorted by trouble"),
      this.#body,
    );
    const load = () => this.#load(lost);
    load();
    this.#timer = setInterval(() => document.hidden || load(), EVERY_MS);
  }

  close() {
    clearInterval(this.#timer);
    this.#stop.abort();
  }

  /** @param {(text: string | null) => void} lost */
  async #load(lost) {
    if (this.#loading) return;
    this.#loading = true;
    const { signal } = this.#stop;
    try {
      const health = await this.#health;
      const [pipelines, samples] = await Promise.all([
        health?.sees_pipelines === false
          ? { problem: "You may not see the pipelines of this server." }
          : part(listed(signal)),
        part(metrics(signal)),
      ]);
      if (signal.aborted) return;
      lost(null);
      if (!this.#known) put(this.#body);
      this.#known = true;
      renew(this.#body, ...drawn(this.#views(), pipelines, samples));
    } catch {
      if (!signal.aborted) lost("the server does not respond");
    } finally {
      this.#loading = false;
    }
  }
}

/**
 * What a request finds, or why it finds nothing; throws if the server does not respond.
 * @template T
 * @param {Promise<T>} wanted
 * @returns {Promise<Part<T>>}
 */
async function part(wanted) {
  try {
    return { found: await wanted };
  } catch (problem) {
    if (problem instanceof TypeError) throw problem;
    return { problem: messageOf(problem) };
  }
}

/** @param {AbortSignal} signal */
async function listed(signal) {
  return /** @type {PipelinesResponse} */ (await json("pipelines", { signal }));
}

/** @param {AbortSignal} signal */
async function metrics(signal) {
  const response = await request("metrics", { signal });
  return samplesOf(response.ok ? await response.text() : "");
}

/**
 * @param {ViewRecord[] | null} views
 * @param {Part<PipelinesResponse>} pipelines
 * @param {Part<Sample[]>} samples
 */
function drawn(views, pipelines, samples) {
  const all = pipelines.found?.pipelines ?? [];
  return [
    h(
      "ul",
      { className: "tiles" },
      pipelines.found ? [states(all), worstLag(all), maintenance(all)] : [],
      views ? freshness(views) : null,
      samples.found ? queues(samples.found) : null,
    ),
    h("h2", {}, "Pipelines"),
    pipelines.found ? pipelineTable(all) : h("p", { className: "hint" }, pipelines.problem),
    h("h2", {}, "Views by age"),
    views ? viewTable(views) : skeleton(4),
  ];
}

/**
 * @param {string} name
 * @param {string} value
 * @param {string} about
 * @param {"bad" | "good" | ""} [mood]
 */
function tile(name, value, about, mood = "") {
  return h(
    "li",
    { className: "tile", "data-mood": mood },
    h("span", { className: "soft" }, name),
    h("strong", {}, value),
    h("span", { className: "soft" }, about),
  );
}

/** @param {PipelineRecord[]} pipelines */
function states(pipelines) {
  /** @param {string} state */
  const number = (state) => pipelines.filter((each) => each.state === state).length;
  const texts = ["running", "failed", "stopped"].map((state) => `${whole(number(state))} ${state}`);
  const [running, failed, stopped] = texts;
  return number("failed")
    ? tile("Pipelines", failed, `${running}, ${stopped}`, "bad")
    : tile("Pipelines", running, `${failed}, ${stopped}`, "good");
}

/** @param {PipelineRecord[]} pipelines */
function worstLag(pipelines) {
  const worst = pipelines.toSorted((one, other) => lagSeconds(other) - lagSeconds(one))[0];
  if (!worst || lagSeconds(worst) < 0) return tile("Worst lag", "–", "no source reports one");
  return tile("Worst lag", lagOf(worst.queries), worst.name);
}

/** @param {PipelineRecord[]} pipelines */
function maintenance(pipelines) {
  const wrong = pipelines.filter((each) => each.maintenance?.last_error);
  const failures = pipelines.reduce((sum, each) => sum + (each.maintenance?.failures ?? 0), 0);
  return tile(
    "Table maintenance",
    wrong.length ? count(failures, "error") : "no errors",
    wrong.length ? wrong.map((each) => each.name).join(", ") : "compaction and expiry",
    wrong.length ? "bad" : "",
  );
}

/** @param {ViewRecord[]} views */
function freshness(views) {
  const times = views.flatMap(({ time }) => (time ? [Date.parse(time)] : []));
  const wrong = views.filter((view) => view.error).length;
  const newest = times.length
    ? `last commit ${ago(serverNow() - Math.max(...times))}`
    : "no commit yet";
  const about = wrong ? `${whole(wrong)} cannot be read` : newest;
  return tile("Views", whole(views.length), about, wrong ? "bad" : "");
}

/** @param {Sample[]} samples */
function queues(samples) {
  /** @param {string} name */
  const all = (name) =>
    samples.reduce((sum, each) => sum + (each.name === `streamhouse_${name}` ? each.value : 0), 0);
  const waiting = all("waiting");
  return tile(
    "Server",
    `${whole(waiting)} waiting`,
    `${count(all("running"), "request")} running, ${count(all("followed_views"), "view")} followed`,
    waiting ? "bad" : "",
  );
}

/** @param {PipelineRecord[]} pipelines */
function pipelineTable(pipelines) {
  if (!pipelines.length)
    return h("p", { className: "hint" }, "No pipeline has run on this warehouse.");
  return table(
    "Pipelines by trouble",
    ["pipeline", "state", "lag", "started", "last error"],
    byTrouble(pipelines).map((each) => {
      const error = errorOf(each) ?? each.maintenance?.last_error ?? null;
      return [
        h("a", { href: `#/pipelines/${encodeURIComponent(each.name)}` }, each.name),
        stateLabel(each.state),
        each.state === "running" ? lagOf(each.queries) : "–",
        since(each.started),
        error ? h("span", { className: "error-text" }, error) : "none",
      ];
    }),
  );
}

/** @param {ViewRecord[]} views */
function viewTable(views) {
  const shown = byAge(views).slice(0, MOST_VIEWS);
  const rows = shown.map((view) => [
    h("a", { href: `#/views/${encodeURIComponent(view.name)}` }, view.title ?? view.name),
    view.error
      ? h("span", { className: "error-text" }, view.error)
      : view.time
        ? since(view.time)
        : "empty",
    view.rows === null ? "–" : count(view.rows, "row"),
  ]);
  const left = views.length - shown.length;
  return h(
    "div",
    {},
    views.length
      ? table("Views by age", ["view", "last commit", "rows"], rows)
      : h("p", { className: "hint" }, "No tables yet."),
    left ? h("p", { className: "hint" }, `${count(left, "younger view")} in the list.`) : null,
  );
}

/**
 * @param {string} caption
 * @param {string[]} heads
 * @param {Child[][]} rows
 */
function table(caption, heads, rows) {
  return h(
    "div",
    { className: "plain-scroll", role: "region", tabIndex: 0, "aria-label": caption },
    h(
      "table",
      { className: "plain" },
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          heads.map((head) => h("th", { scope: "col" }, head)),
        ),
      ),
      h(
        "tbody",
        {},
        rows.map((cells) =>
          h(
            "tr",
            {},
            cells.map((cell) => h("td", {}, cell)),
          ),
        ),
      ),
    ),
  );
}
