// Formats the rate, lag and last error of pipelines.

import { count, whole } from "../format/numbers.js";
import { ago } from "../format/times.js";
import { serverNow } from "../server/server-clock.js";

/** @typedef {import("../server/responses.d.ts").Lag} Lag */
/** @typedef {import("../server/responses.d.ts").PipelineRecord} PipelineRecord */
/** @typedef {import("../server/responses.d.ts").QueryRecord} QueryRecord */

/**
 * Its last error, or that of one of its queries.
 * @param {PipelineRecord} pipeline
 */
export function errorOf({ last_error: error, queries }) {
  return error ?? queries.find((query) => query.last_error)?.last_error ?? null;
}

/** @param {QueryRecord} query */
export function rateOf({ rows_per_second: rate }) {
  return rate > 0 && rate < 10 ? rate.toFixed(1) : whole(Math.round(rate));
}

/**
 * The largest lag of these queries, in the first unit that their sources report.
 * @param {QueryRecord[]} queries
 */
export function lagOf(queries) {
  const lags = queries.flatMap((query) => query.lag ?? []);
  /** @param {keyof Lag} name */
  const most = (name) => Math.max(-1, ...lags.map((lag) => lag[name] ?? -1));
  const [seconds, rows, snapshots, bytes, hidden] = [
    most("seconds"),
    most("rows"),
    most("snapshots"),
    most("bytes"),
    most("waiting_rows"),
  ];
  const waiting = hidden > 0 ? ` (${count(hidden, "row")} to compact)` : "";
  if (seconds >= 0)
    return `${seconds < 10 ? seconds.toFixed(1) : whole(Math.round(seconds))} s${waiting}`;
  if (rows >= 0) return count(rows, "row") + waiting;
  if (snapshots >= 0) return count(snapshots, "snapshot") + waiting;
  if (bytes >= 0) return `${whole(Math.ceil(bytes / 1024))} KB${waiting}`;
  return waiting ? waiting.trim() : "–";
}

/** @param {string | null} time */
export function since(time) {
  const ms = Date.parse(time ?? "");
  return Number.isNaN(ms) ? "–" : ago(serverNow() - ms);
}
