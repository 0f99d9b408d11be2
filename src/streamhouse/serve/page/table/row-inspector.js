// A dialog with the whole values of one row.

import { visiblePieces, wholeText } from "../format/whole-values.js";
import { copyButton } from "../ui/clipboard.js";
import { h } from "../ui/dom.js";

/** @typedef {import("../server/responses.d.ts").Cell} Cell */
/** @typedef {import("../server/responses.d.ts").TypedColumn} TypedColumn */

/**
 * Shows a row; `at` is the column that is shown first.
 * @param {TypedColumn[]} columns
 * @param {Cell[]} cells
 * @param {number} at
 */
export function inspectRow(columns, cells, at) {
  const sections = columns.map((column, index) => section(column, cells[index], index === at));
  const dialog = h(
    "dialog",
    { className: "inspector", "aria-labelledby": "inspector-title" },
    h(
      "form",
      { method: "dialog", className: "inspector-head" },
      h("h2", { id: "inspector-title" }, "Row"),
      h("button", { type: "submit" }, "Close"),
    ),
    h(
      "div",
      { className: "inspector-values", role: "region", "aria-label": "Values", tabIndex: 0 },
      sections,
    ),
  );
  document.body.append(dialog);
  dialog.addEventListener("close", () => dialog.remove());
  dialog.showModal();
  sections[at]?.scrollIntoView({ block: "nearest" });
}

/**
 * @param {TypedColumn} column
 * @param {Cell} value
 * @param {boolean} isChosen
 */
function section({ name, type }, value, isChosen) {
  const whole = wholeText(value, type);
  const isNull = value === null || value === undefined;
  const pieces = visiblePieces(whole).map((piece) =>
    piece.isInvisible
      ? h("mark", { title: "Characters that are not seen in the table" }, piece.text)
      : piece.text,
  );
  return h(
    "section",
    { className: isChosen ? "chosen" : "", "aria-label": name },
    h(
      "div",
      { className: "usage-head" },
      h("h3", {}, name),
      h("span", { className: "soft" }, type),
      copyButton(`Copy ${name}`, () => whole.text),
    ),
    h("pre", { className: isNull ? "soft" : "" }, pieces.length ? pieces : "(empty text)"),
  );
}
