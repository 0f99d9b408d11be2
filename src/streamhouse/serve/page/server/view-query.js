// SQL over a view: its name at a snapshot, and the SELECTs that the page runs.

import { json } from "./requests.js";

/** @typedef {import("./responses.d.ts").SqlResponse} SqlResponse */

/** @param {string} name */
export function quoted(name) {
  return `\`${name.replaceAll("`", "``")}\``;
}

/** @param {string} text */
export function literal(text) {
  return `'${text.replaceAll("'", "''")}'`;
}

/**
 * The name of a view as a table of a query; with a snapshot, its rows as of that one.
 * @param {string} view
 * @param {number | null} [snapshot]
 */
export function tableOf(view, snapshot = null) {
  const dot = view.indexOf(".");
  const name = [view.slice(0, dot), view.slice(dot + 1)].map(quoted).join(".");
  return snapshot === null ? name : `${name} /*+ OPTIONS('scan.snapshot-id'='${snapshot}') */`;
}

/**
 * Runs one SELECT. Throws `Problem`.
 * @param {string} sql
 * @param {AbortSignal} [signal]
 */
export async function select(sql, signal) {
  const response = await json("sql", { method: "POST", body: { sql }, signal });
  return /** @type {SqlResponse} */ (response);
}

/**
 * How many rows of a view fulfil a condition (empty: all), at a snapshot.
 * @param {string} view
 * @param {number | null} snapshot
 * @param {string} condition
 * @param {AbortSignal} signal
 */
export async function countRows(view, snapshot, condition, signal) {
  const where = condition ? ` WHERE ${condition}` : "";
  const { rows } = await select(
    `SELECT COUNT(*) AS n FROM ${tableOf(view, snapshot)}${where}`,
    signal,
  );
  return Number(rows[0].n);
}
