// The views and their columns as a tree, from which names are inserted into a query.

import { h, put } from "../ui/dom.js";
import { skeleton } from "../ui/placeholder.js";
import { sqlName } from "./completion.js";

/** @typedef {import("../server/responses.d.ts").ViewRecord} ViewRecord */

/**
 * Shows the views in `element`, null until they are loaded; `insert` takes a name to insert.
 * @param {HTMLElement} element
 * @param {ViewRecord[] | null} views
 * @param {(name: string) => void} insert
 */
export function showSchema(element, views, insert) {
  if (!views) return put(element, skeleton(8));
  return put(
    element,
    h("h2", {}, "Views"),
    views.length ? null : h("p", { className: "hint" }, "No tables yet."),
    views.map((view) => tree(view, insert)),
  );
}

/**
 * @param {ViewRecord} view
 * @param {(name: string) => void} insert
 */
function tree({ name, columns, primary_key: key }, insert) {
  const full = name.split(".").map(sqlName).join(".");
  const list = h("ul", {});
  const details = h(
    "details",
    {},
    h("summary", {}, name),
    h("button", { type: "button", onclick: () => insert(full) }, "Insert name"),
    list,
  );
  // Not before it is unfolded: a view can have hundreds of columns.
  details.addEventListener("toggle", () => {
    if (!details.open || list.childElementCount) return;
    put(
      list,
      columns.map((column) =>
        h(
          "li",
          {},
          h(
            "button",
            {
              type: "button",
              className: "plain-button",
              onclick: () => insert(sqlName(column.name)),
            },
            h("span", { className: key.includes(column.name) ? "key" : "" }, column.name),
            " ",
            h("span", { className: "soft" }, column.type),
          ),
        ),
      ),
    );
  });
  return details;
}
