// Draws the graph of a script: its tables, its queries, and the edges between them.

import { s } from "../ui/dom.js";
import { arrange } from "./graph-layout.js";

/** @typedef {import("./graph-layout.js").Box} Box */
/** @typedef {import("../server/responses.d.ts").Graph} Graph */
/** @typedef {import("../server/responses.d.ts").GraphEdge} GraphEdge */
/** @typedef {import("../server/responses.d.ts").GraphNode} GraphNode */

const LINE_PX = 15;
const HEAD_PX = 30;
const MAX_DETAILS = 3;
const NAME_PX = 8.3;
const DETAIL_PX = 6.3;
const SIDES_PX = 34;
const MAX_PX = 320;

/**
 * The SVG of a graph; `link` gives the address of a table's view, `notes` lines of text by node id.
 * @param {Graph} graph
 * @param {(table: string) => string | null} link
 * @param {Map<string, string[]>} [notes]
 */
export function drawGraph(graph, link, notes = new Map()) {
  const boxes = new Map(graph.nodes.map((node) => [node.id, box(node, notes.get(node.id) ?? [])]));
  const edges = graph.edges.filter(
    (edge) => edge.from !== edge.to && boxes.has(edge.from) && boxes.has(edge.to),
  );
  const { width, height } = arrange(boxes, edges);
  const viewBox = `0 0 ${width} ${height}`;
  return s(
    "svg",
    { class: "graph", role: "group", width, height, viewBox, "aria-label": description(graph) },
    tip(),
    edges.map((edge) => path(edge, boxes)),
    [...boxes.values()].map((each) => drawn(each, link(each.node.id))),
  );
}

/**
 * @param {GraphNode} node
 * @param {string[]} notes
 * @returns {Box}
 */
function box(node, notes) {
  const details = [...notes, ...node.details.slice(0, MAX_DETAILS)];
  const wide = Math.max(
    letters(node.name) * NAME_PX,
    ...details.map((line) => letters(line) * DETAIL_PX),
  );
  return {
    node,
    details,
    notes: notes.length,
    width: Math.min(MAX_PX, wide + SIDES_PX),
    height: HEAD_PX + details.length * LINE_PX + (details.length ? 6 : 0),
    x: 0,
    y: 0,
  };
}

/**
 * The approximate width of a text in Latin letters; CJK characters count more.
 * @param {string} text
 */
function letters(text) {
  return [...text].reduce((sum, each) => sum + (each > "\u2e7f" ? 1.8 : 1), 0);
}

/**
 * Truncates a text to a width in pixels.
 * @param {string} text
 * @param {number} letterPx
 * @param {number} room
 */
function cut(text, letterPx, room) {
  if (letters(text) * letterPx < room + 1) return text;
  const kept = [...text];
  while (kept.length > 1 && (letters(kept.join("")) + 1) * letterPx > room) kept.pop();
  return `${kept.join("")}…`;
}

function tip() {
  return s(
    "defs",
    {},
    s(
      "marker",
      {
        id: "tip",
        viewBox: "0 0 8 8",
        refX: 7,
        refY: 4,
        markerWidth: 7,
        markerHeight: 7,
        orient: "auto",
      },
      s("path", { class: "tip", d: "M0 0L8 4L0 8z" }),
    ),
  );
}

/**
 * @param {GraphEdge} edge
 * @param {Map<string, Box>} boxes
 */
function path(edge, boxes) {
  const [from, to] = [boxes.get(edge.from), boxes.get(edge.to)];
  if (!from || !to) return null;
  const [x0, y0, x1, y1] = [
    from.x + from.width,
    from.y + from.height / 2,
    to.x - 2,
    to.y + to.height / 2,
  ];
  const bend = Math.max(28, (x1 - x0) / 2);
  const words = ["edge", edge.kind === "looks up" ? "lookup" : ""].filter(Boolean).join(" ");
  return s(
    "path",
    {
      class: words,
      "marker-end": "url(#tip)",
      d: `M${x0} ${y0}C${x0 + bend} ${y0} ${x1 - bend} ${y1} ${x1} ${y1}`,
    },
    edge.label ? s("title", {}, edge.label) : null,
  );
}

/**
 * @param {Box} box
 * @param {string | null} href
 */
function drawn({ node, details, notes, x, y, width, height }, href) {
  const layer = "layer" in node ? node.layer : null;
  const query = ["continuous", "bounded", "console"].includes(node.kind);
  const parts = [
    s("rect", { class: "box", x, y, width, height, rx: query ? 15 : 5 }),
    query
      ? s("circle", { class: `mark of-${node.kind}`, cx: x + 14, cy: y + 15, r: 4 })
      : s("rect", {
          class: `mark of-${layer ?? node.kind}`,
          x: x + 1,
          y: y + 6,
          width: 4,
          height: height - 12,
        }),
    s("text", { class: "name", x: x + 24, y: y + 19 }, cut(node.name, NAME_PX, width - SIDES_PX)),
    ...details.map((line, at) =>
      s(
        "text",
        { class: at < notes ? "note" : "detail", x: x + 24, y: y + HEAD_PX + 6 + at * LINE_PX },
        cut(line, DETAIL_PX, width - SIDES_PX),
      ),
    ),
  ];
  const group = s(
    "g",
    { class: `node ${query ? "query" : "table"}`, "data-id": node.id },
    s("title", {}, [node.name, ...node.details].join("\n")),
    parts,
  );
  return href ? s("a", { href }, group) : group;
}

/** @param {Graph} graph */
function description(graph) {
  return `Graph: ${graph.edges.map((edge) => `${edge.from} ${edge.kind} ${edge.to}`).join("; ")}`;
}
