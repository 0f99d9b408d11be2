// The schema, options, snapshots and files of a view, as tables.

import { whole } from "../format/numbers.js";
import { dateAndTime } from "../format/times.js";
import { messageOf } from "../server/errors.js";
import { json } from "../server/requests.js";
import { viewPath } from "../server/urls.js";
import { h, put } from "../ui/dom.js";
import { empty, skeleton } from "../ui/placeholder.js";

/** @typedef {import("../server/responses.d.ts").Json} Json */
/** @typedef {import("../server/responses.d.ts").JsonObject} JsonObject */
/** @typedef {keyof typeof PATHS} Part */

const PATHS = {
  schema: "/schema",
  options: "/options",
  snapshots: "/snapshots?limit=200",
  files: "/files?limit=500",
};
/** @type {{ [name: string]: string }} */
const TITLES = {
  schema_versions: "Schema versions",
  primary_key: "Primary key",
  partitioned_by: "Partitioned by",
};
const TIME = /(^|_)(time|at|created|changed)$/;

/**
 * Loads one of them and shows it in a panel.
 * @param {HTMLElement} panel
 * @param {string} name
 * @param {Part} what
 */
export async function showMetadata(panel, name, what) {
  if (!panel.firstChild) put(panel, skeleton(8));
  try {
    const response = /** @type {JsonObject} */ (await json(viewPath(name, PATHS[what])));
    put(panel, sections(response, what));
  } catch (problem) {
    put(panel, empty(`The ${what} cannot be loaded`, messageOf(problem)));
  }
}

/**
 * An response as titled tables: one for each list of records and each object.
 * @param {JsonObject} response
 * @param {Part} what
 */
function sections(response, what) {
  /** @type {HTMLElement[]} */
  const parts = [];
  /** @type {JsonObject} */
  const single = {};
  for (const [name, value] of Object.entries(response)) {
    if (Array.isArray(value) && value.length && value.every(isObject))
      parts.push(h("h2", {}, title(name)), listing(value, title(name)));
    else if (isObject(value) && Object.keys(value).length)
      parts.push(h("h2", {}, title(name)), pairs(value, title(name)));
    else if (!Array.isArray(value) || value.length) single[name] = value;
  }
  if (Object.keys(single).length) parts.unshift(pairs(single, "Summary"));
  return parts.length ? parts : [empty(`No ${what}`, "This view has none yet.")];
}

/**
 * @param {Json} value
 * @returns {value is JsonObject}
 */
function isObject(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** @param {string} name */
function title(name) {
  const words = TITLES[name] ?? name.replaceAll("_", " ");
  return words.charAt(0).toUpperCase() + words.slice(1);
}

/**
 * @param {JsonObject[]} records
 * @param {string} caption
 */
function listing(records, caption) {
  const names = [...new Set(records.flatMap((record) => Object.keys(record)))];
  const numbers = new Set(
    names.filter((name) =>
      records.every((record) => record[name] === null || typeof record[name] === "number"),
    ),
  );
  const head = names.map((name) =>
    h(
      "th",
      { scope: "col", className: numbers.has(name) ? "number" : "" },
      name.replaceAll("_", " "),
    ),
  );
  const body = records.map((record) =>
    h(
      "tr",
      {},
      names.map((name) =>
        h("td", { className: numbers.has(name) ? "number" : "" }, text(record[name], name)),
      ),
    ),
  );
  return h(
    "div",
    { className: "plain-scroll", role: "region", tabIndex: 0, "aria-label": caption },
    h("table", { className: "plain" }, h("thead", {}, h("tr", {}, head)), h("tbody", {}, body)),
  );
}

/**
 * @param {JsonObject} values
 * @param {string} caption
 */
function pairs(values, caption) {
  const rows = Object.entries(values).map(([name, value]) =>
    h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, text(value, name))),
  );
  return h(
    "div",
    { className: "plain-scroll" },
    h("table", { className: "plain pairs", "aria-label": caption }, h("tbody", {}, rows)),
  );
}

/**
 * @param {Json | undefined} value
 * @param {string} name
 */
function text(value, name) {
  if (value === null || value === undefined) return "–";
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (Array.isArray(value))
    return (
      value
        .map((each) => (typeof each === "object" ? JSON.stringify(each) : String(each)))
        .join(", ") || "–"
    );
  if (typeof value === "object") return JSON.stringify(value);
  if (typeof value === "number")
    return /(^|_)(id|snapshot|version|schema)$/.test(name) ? String(value) : whole(value);
  const ms = TIME.test(name) ? Date.parse(String(value)) : NaN;
  return Number.isNaN(ms) ? String(value) : dateAndTime(ms);
}
