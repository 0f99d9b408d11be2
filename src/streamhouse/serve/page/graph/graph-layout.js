// Lays out a graph: ranks nodes in columns, orders them to avoid crossing edges, and aligns them.

/** @typedef {import("../server/responses.d.ts").GraphEdge} GraphEdge */
/** @typedef {import("../server/responses.d.ts").GraphNode} GraphNode */

/**
 * The box of a node; the first `notes` of its lines of text are notes.
 * @typedef {Object} Box
 * @property {GraphNode} node
 * @property {string[]} details
 * @property {number} notes
 * @property {number} x
 * @property {number} y
 * @property {number} width
 * @property {number} height
 */

const GAP_PX = 20;
const COLUMN_PX = 64;
const EDGE_PX = 16;
const SWEEPS = 10;

/**
 * Sets `x`, `y` and `width` of each box; returns the size of the whole.
 * @param {Map<string, Box>} boxes by the ids of their nodes
 * @param {GraphEdge[]} edges
 */
export function arrange(boxes, edges) {
  const columns = ranked([...boxes.values()], edges);
  order(columns, edges);
  return placed(columns, edges, boxes);
}

/**
 * Columns of boxes, each box one column after its last predecessor; cycles are cut at one edge.
 * @param {Box[]} boxes
 * @param {GraphEdge[]} edges
 */
function ranked(boxes, edges) {
  /** @type {Map<string, number>} */
  const done = new Map();
  /**
   * @param {string} id
   * @param {Set<string>} above
   * @returns {number}
   */
  const rank = (id, above) => {
    const known = done.get(id);
    if (known !== undefined) return known;
    if (above.has(id)) return -1;
    above.add(id);
    const into = edges.filter((edge) => edge.to === id);
    const found = Math.max(-1, ...into.map((edge) => rank(edge.from, above))) + 1;
    above.delete(id);
    done.set(id, found);
    return found;
  };
  /** @type {Box[][]} */
  const columns = [];
  for (const each of boxes) (columns[rank(each.node.id, new Set())] ??= []).push(each);
  return Array.from(columns, (column) => column ?? []);
}

/**
 * Sorts each column by the mean position of the neighbours, so that few edges cross.
 * @param {Box[][]} columns
 * @param {GraphEdge[]} edges
 */
function order(columns, edges) {
  /** @type {Map<string, number>} */
  const place = new Map();
  /** @param {string} id */
  const at = (id) => place.get(id) ?? 0;
  const note = () =>
    columns.forEach((column) =>
      column.forEach((each, row) => place.set(each.node.id, (row + 0.5) / column.length)),
    );
  note();
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    for (const column of sweep % 2 ? columns.toReversed() : columns) {
      const pulled = new Map(
        column.map((each) => [each, mean(neighbours(each, edges).map(at)) ?? at(each.node.id)]),
      );
      column.sort((one, other) => (pulled.get(one) ?? 0) - (pulled.get(other) ?? 0));
    }
    note();
  }
}

/**
 * @param {Box} box
 * @param {GraphEdge[]} edges
 */
function neighbours({ node }, edges) {
  return edges.flatMap((edge) =>
    edge.from === node.id ? [edge.to] : edge.to === node.id ? [edge.from] : [],
  );
}

/** @param {number[]} values */
function mean(values) {
  return values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : null;
}

/**
 * @param {Box[][]} columns
 * @param {GraphEdge[]} edges
 * @param {Map<string, Box>} boxes
 */
function placed(columns, edges, boxes) {
  let x = EDGE_PX;
  for (const column of columns) {
    const wide = Math.max(0, ...column.map((each) => each.width));
    let y = 0;
    for (const each of column) {
      Object.assign(each, { x, width: wide, y });
      y += each.height + GAP_PX;
    }
    x += wide + COLUMN_PX;
  }
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    for (const column of sweep % 2 ? columns.toReversed() : columns) pull(column, edges, boxes);
  }
  const all = [...boxes.values()];
  const top = Math.min(0, ...all.map((each) => each.y));
  for (const each of all) each.y += EDGE_PX - top;
  return {
    width: Math.round(x - COLUMN_PX + EDGE_PX),
    height: Math.round(Math.max(60, ...all.map((each) => each.y + each.height)) + EDGE_PX),
  };
}

/**
 * Moves the boxes of a column to the height of their neighbours, without overlaps.
 * @param {Box[]} column
 * @param {GraphEdge[]} edges
 * @param {Map<string, Box>} boxes
 */
function pull(column, edges, boxes) {
  const middles = column.map((each) => {
    const others = neighbours(each, edges).flatMap((id) => boxes.get(id) ?? []);
    return mean(others.map(middle)) ?? middle(each);
  });
  let end = -Infinity;
  const tops = column.map((each, at) => {
    const top = Math.max(middles[at] - each.height / 2, end);
    end = top + each.height + GAP_PX;
    return top;
  });
  const shift = mean(tops.map((top, at) => middles[at] - column[at].height / 2 - top)) ?? 0;
  column.forEach((each, at) => {
    each.y = tops[at] + shift;
  });
}

/** @param {Box} box */
function middle({ y, height }) {
  return y + height / 2;
}
