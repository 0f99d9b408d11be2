// A script's graph: columns from left to right, tables and queries, and what flows between them.

import { s } from "./dom.js";

const LINE_PX = 15;
const HEAD_PX = 30;
const GAP_PX = 20;
const COLUMN_PX = 64;
const EDGE_PX = 16;
const SWEEPS = 10;
const MOST_DETAILS = 3;
const NAME_PX = 8.3;
const DETAIL_PX = 6.3;
const SIDES_PX = 34;
const MOST_PX = 320;

/** The SVG element of `{nodes, edges}`; `notes` are lines by node id, `link(node)` its address or null. */
export function draw(graph, { notes = new Map(), link = () => null } = {}) {
  const boxes = new Map(graph.nodes.map((node) => [node.id, box(node, notes.get(node.id))]));
  const edges = graph.edges.filter(
    (edge) => edge.from !== edge.to && boxes.has(edge.from) && boxes.has(edge.to),
  );
  const columns = ordered(ranked([...boxes.values()], edges), edges);
  const { width, height } = placed(columns, edges, boxes);
  const svg = s("svg", {
    class: "graph",
    role: "group",
    width,
    height,
    viewBox: `0 0 ${width} ${height}`,
    "aria-label": told(graph),
  });
  svg.append(
    tip(),
    ...edges.map((edge) => path(edge, boxes)),
    ...[...boxes.values()].map((each) => drawn(each, link(each.node))),
  );
  return svg;
}

function box(node, note) {
  const details = [...(note ?? []), ...(node.details ?? []).slice(0, MOST_DETAILS)];
  const wide = Math.max(
    letters(node.name) * NAME_PX,
    ...details.map((line) => letters(line) * DETAIL_PX),
  );
  return {
    node,
    details,
    notes: note?.length ?? 0,
    width: Math.min(MOST_PX, wide + SIDES_PX),
    height: HEAD_PX + details.length * LINE_PX + (details.length ? 6 : 0),
    x: 0,
    y: 0,
    rank: 0,
  };
}

/** How many letters a text is as wide as, about: Chinese ones and their like are broad. */
function letters(text) {
  return [...text].reduce((sum, each) => sum + (each > "\u2e7f" ? 1.8 : 1), 0);
}

/** As much of a text as there is room for. */
function cut(text, letterPx, room) {
  if (letters(text) * letterPx < room + 1) return text;
  const kept = [...text];
  while (kept.length > 1 && (letters(kept.join("")) + 1) * letterPx > room) kept.pop();
  return `${kept.join("")}…`;
}

/** Each box one column behind the last that leads to it; what goes round in a ring is cut once. */
function ranked(boxes, edges) {
  const into = new Map(boxes.map((each) => [each.node.id, []]));
  for (const edge of edges) into.get(edge.to).push(edge.from);
  const byId = new Map(boxes.map((each) => [each.node.id, each]));
  const done = new Map();
  const rank = (id, above) => {
    if (done.has(id)) return done.get(id);
    if (above.has(id)) return -1;
    above.add(id);
    const found = Math.max(-1, ...into.get(id).map((from) => rank(from, above))) + 1;
    above.delete(id);
    done.set(id, found);
    return found;
  };
  const columns = [];
  for (const each of boxes) {
    each.rank = rank(each.node.id, new Set());
    (columns[each.rank] ??= []).push(byId.get(each.node.id));
  }
  return Array.from(columns, (column) => column ?? []);
}

/** Boxes of a column in the order of what they are tied to, so that few edges cross. */
function ordered(columns, edges) {
  const place = new Map();
  const note = () =>
    columns.forEach((column) =>
      column.forEach((each, at) => place.set(each.node.id, (at + 0.5) / column.length)),
    );
  note();
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    for (const column of sweep % 2 ? columns.toReversed() : columns) {
      const pull = new Map(
        column.map((each) => [
          each,
          mean(neighbours(each, edges).map((id) => place.get(id))) ?? place.get(each.node.id),
        ]),
      );
      column.sort((one, other) => pull.get(one) - pull.get(other));
    }
    note();
  }
  return columns;
}

function neighbours({ node }, edges) {
  return edges.flatMap((edge) =>
    edge.from === node.id ? [edge.to] : edge.to === node.id ? [edge.from] : [],
  );
}

function mean(values) {
  return values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : null;
}

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

/** Moves a column's boxes to the height of their neighbours, as far as they do not overlap. */
function pull(column, edges, boxes) {
  const middles = column.map(
    (each) =>
      mean(neighbours(each, edges).map((id) => boxes.get(id).y + boxes.get(id).height / 2)) ??
      each.y + each.height / 2,
  );
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

function path(edge, boxes) {
  const [from, to] = [boxes.get(edge.from), boxes.get(edge.to)];
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

function drawn({ node, details, notes, x, y, width, height }, href) {
  const query = ["continuous", "bounded", "console"].includes(node.kind);
  const parts = [
    s("rect", { class: "box", x, y, width, height, rx: query ? 15 : 5 }),
    query
      ? s("circle", { class: `mark of-${node.kind}`, cx: x + 14, cy: y + 15, r: 4 })
      : s("rect", {
          class: `mark of-${node.layer ?? node.kind}`,
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
    s("title", {}, [node.name, ...(node.details ?? [])].join("\n")),
    parts,
  );
  return href ? s("a", { href }, group) : group;
}

function told(graph) {
  return `Graph: ${graph.edges.map((edge) => `${edge.from} ${edge.kind} ${edge.to}`).join("; ")}`;
}
