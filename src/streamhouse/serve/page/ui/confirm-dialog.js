// A confirmation dialog for actions that cannot be undone.

import { h } from "./dom.js";

/**
 * Resolves to whether the user confirms; `verb` is the label of that button.
 * @param {string} title
 * @param {string} text
 * @param {string} verb
 * @returns {Promise<boolean>}
 */
export function confirmed(title, text, verb) {
  const dialog = h(
    "dialog",
    { "aria-labelledby": "confirm-title", "aria-describedby": "confirm-text" },
    h(
      "form",
      { method: "dialog" },
      h("h2", { id: "confirm-title" }, title),
      h("p", { id: "confirm-text" }, text),
      h(
        "div",
        { className: "buttons" },
        h("button", { type: "submit", value: "no", autofocus: true }, "Cancel"),
        h("button", { type: "submit", value: "yes", className: "danger-button" }, verb),
      ),
    ),
  );
  document.body.append(dialog);
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue === "yes");
    });
  });
}
