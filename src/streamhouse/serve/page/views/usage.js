// How programs read a view: commands and code with its address and columns, to copy.

import { address, viewPath } from "../server/urls.js";
import { tableOf } from "../server/view-query.js";
import { copyButton } from "../ui/clipboard.js";
import { h, put } from "../ui/dom.js";

/** @typedef {import("../server/responses.d.ts").ViewRecord} ViewRecord */

/** @typedef {{ title: string, about: string, code: string }} Example */

const MOST_COLUMNS = 4;

/**
 * Shows the examples for a view in a panel.
 * @param {HTMLElement} panel
 * @param {ViewRecord} view
 * @param {boolean} needsToken whether clients send a token
 */
export function showUsage(panel, view, needsToken) {
  put(
    panel,
    h(
      "p",
      { className: "hint" },
      needsToken
        ? "Replace TOKEN by your token. The examples read this server's address, as this page does."
        : "The examples read this server's address, as this page does.",
    ),
    examples(view, needsToken).map(({ title, about, code }) => section(title, about, code)),
  );
}

/**
 * @param {string} title
 * @param {string} about
 * @param {string} code
 */
function section(title, about, code) {
  return h(
    "section",
    { className: "usage", "aria-label": title },
    h(
      "div",
      { className: "usage-head" },
      h("h2", {}, title),
      h("span", { className: "soft" }, about),
      copyButton(`Copy: ${title}`, () => code),
    ),
    h("pre", { className: "command", tabIndex: 0 }, h("code", {}, code)),
  );
}

/**
 * @param {ViewRecord} view
 * @param {boolean} needsToken
 * @returns {Example[]}
 */
function examples(view, needsToken) {
  const rows = address(viewPath(view.name)).href;
  const changes = address(viewPath(view.name, "/changes")).href;
  const sql = address("sql").href;
  // The parameter separates names by commas.
  const names = view.columns.map(({ name }) => name).filter((name) => !name.includes(","));
  const columns = names.slice(0, MOST_COLUMNS);
  const query = `SELECT ${columns.map(sqlName).join(", ")} FROM ${tableOf(view.name)} LIMIT 10`;
  const curl = needsToken ? `curl -H 'Authorization: Bearer TOKEN'` : "curl";
  const headers = needsToken ? `, headers={"Authorization": "Bearer TOKEN"}` : "";
  const selected = `columns=${encodeURIComponent(columns.join(","))}`;
  const storage = needsToken ? `, storage_options={"Authorization": "Bearer TOKEN"}` : "";
  return [
    {
      title: "curl",
      about: "rows as JSON, as CSV, and changes as they happen",
      code: [
        `${curl} ${shellQuoted(`${rows}?${selected}&limit=10`)}`,
        `${curl} ${shellQuoted(`${rows}?format=csv`)}`,
        `${curl} -N -H 'Accept: text/event-stream' ${shellQuoted(changes)}`,
        `${curl} ${shellQuoted(sql)} -H 'Content-Type: application/sql' \\\n  --data-binary ${shellQuoted(query)}`,
      ].join("\n"),
    },
    {
      title: "Python",
      about: "rows with requests",
      code: `import requests\n\nresponse = requests.get(\n    ${python(rows)},\n    params={"columns": ${python(columns.join(","))}, "limit": 10}${headers ? `,\n    ${headers.slice(2)}` : ""},\n)\nresponse.raise_for_status()\nfor row in response.json()["rows"]:\n    print(row)`,
    },
    {
      title: "pandas",
      about: "all rows as a data frame, with their types",
      code: `import pandas as pd\n\nframe = pd.read_parquet(${python(`${rows}?format=parquet`)}${storage})\nprint(frame[[${columns.map(python).join(", ")}]].head())`,
    },
    {
      title: "DuckDB",
      about: "all rows as a file, of which any query reads what it needs",
      code: [
        `${curl} -o view.parquet ${shellQuoted(`${rows}?format=parquet`)}`,
        `duckdb -c ${shellQuoted(`SELECT ${columns.map(doubleQuoted).join(", ")} FROM read_parquet('view.parquet') LIMIT 10`)}`,
      ].join("\n"),
    },
    {
      title: "Power BI",
      about: "Get data, Blank query, Advanced editor",
      code: `let\n  Source = Csv.Document(\n    Web.Contents(${doubleQuoted(`${rows}?format=csv`)}${needsToken ? ', [Headers = [Authorization = "Bearer TOKEN"]]' : ""}),\n    [Delimiter = ",", Encoding = 65001, QuoteStyle = QuoteStyle.Csv]\n  ),\n  View = Table.PromoteHeaders(Source)\nin\n  View`,
    },
    {
      title: "JDBC",
      about: "of the tables, by a server that `streamhouse thrift` starts",
      code: `jdbc:hive2://${new URL(document.baseURI).hostname}:10000/${view.name.slice(0, view.name.indexOf("."))}\n\n${query}`,
    },
  ];
}

/** @param {string} name */
function sqlName(name) {
  return `\`${name.replaceAll("`", "``")}\``;
}

/** @param {string} name */
function doubleQuoted(name) {
  return `"${name.replaceAll('"', '""')}"`;
}

/** @param {string} text */
function python(text) {
  return JSON.stringify(text);
}

/** @param {string} text */
function shellQuoted(text) {
  return `'${text.replaceAll("'", "'\\''")}'`;
}
