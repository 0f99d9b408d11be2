// The state of a pipeline as a label.

import { h } from "./dom.js";

/** @typedef {import("../server/responses.d.ts").PipelineRecord} PipelineRecord */

/**
 * The state of a pipeline as a coloured label.
 * @param {PipelineRecord["state"]} name
 */
export function stateLabel(name) {
  return h("span", { className: "pill", "data-state": name }, name);
}
