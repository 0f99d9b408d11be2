// What else there is to know of a view: its schema, options, snapshots and files.

import { json, said, viewPath } from "./server.js";
import { empty, h, put } from "./dom.js";
import { moment, whole } from "./format.js";

const ASKED = {
  schema: "/schema",
  options: "/options",
  snapshots: "/snapshots?limit=200",
  files: "/files?limit=500",
};
const TITLES = {
  schema_versions: "Versions of the schema",
  primary_key: "Primary key",
  partitioned_by: "Partitioned by",
};
const TIME = /(^|_)(time|at|created|changed)$/;

/** Fills a panel with one of `schema`, `options`, `snapshots`, `files` of a view. */
export async function showDetails(panel, name, what) {
  if (!panel.firstChild) put(panel, h("p", { className: "hint" }, "Loading …"));
  try {
    put(panel, sections(await json(viewPath(name, ASKED[what])), what));
  } catch (problem) {
    put(panel, empty(`There is no word on the ${what}`, said(problem)));
  }
}

/** An answer as tables: lists of records, and names with values, each under its title. */
function sections(answer, what) {
  const parts = [];
  const single = {};
  for (const [name, value] of Object.entries(answer)) {
    if (Array.isArray(value) && value.length && typeof value[0] === "object")
      parts.push(h("h3", {}, title(name)), listing(value, title(name)));
    else if (
      value &&
      typeof value === "object" &&
      !Array.isArray(value) &&
      Object.keys(value).length
    )
      parts.push(h("h3", {}, title(name)), pairs(value, title(name)));
    else if (!Array.isArray(value) || value.length) single[name] = value;
  }
  if (Object.keys(single).length) parts.unshift(pairs(single, "Summary"));
  return parts.length ? parts : [empty(`No ${what}`, "There are none yet.")];
}

function title(name) {
  const words = TITLES[name] ?? name.replaceAll("_", " ");
  return words.charAt(0).toUpperCase() + words.slice(1);
}

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
  if (TIME.test(name) && !Number.isNaN(Date.parse(value))) return moment(Date.parse(value));
  return String(value);
}
