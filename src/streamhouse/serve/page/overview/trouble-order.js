// Sorts pipelines and views by trouble: what needs somebody first is first.

import { errorOf } from "../pipelines/pipeline-metrics.js";

/** @typedef {import("../server/responses.d.ts").PipelineRecord} PipelineRecord */
/** @typedef {import("../server/responses.d.ts").ViewRecord} ViewRecord */

/**
 * The largest lag of a pipeline's queries in seconds; -1 if no source reports one.
 * @param {PipelineRecord} pipeline
 */
export function lagSeconds({ state, queries }) {
  if (state !== "running") return -1;
  return Math.max(-1, ...queries.map(({ lag }) => lag?.seconds ?? -1));
}

/**
 * Failed pipelines first, then those with errors, then by their lag; those that were stopped last.
 * @param {PipelineRecord[]} pipelines
 */
export function byTrouble(pipelines) {
  return pipelines.toSorted(
    (one, other) =>
      rank(one) - rank(other) ||
      lagSeconds(other) - lagSeconds(one) ||
      (one.name < other.name ? -1 : 1),
  );
}

/** @param {PipelineRecord} pipeline */
function rank(pipeline) {
  if (pipeline.state === "failed") return 0;
  if (pipeline.state === "stopped") return 4;
  if (errorOf(pipeline)) return 1;
  return pipeline.maintenance?.last_error ? 2 : 3;
}

/**
 * Views that cannot be read first, then the one without a commit for longest; empty ones last.
 * @param {ViewRecord[]} views
 */
export function byAge(views) {
  return views.toSorted(
    (one, other) => committed(one) - committed(other) || (one.name < other.name ? -1 : 1),
  );
}

/** @param {ViewRecord} view */
function committed({ error, time }) {
  if (error) return -Infinity;
  return time ? Date.parse(time) : Infinity;
}
