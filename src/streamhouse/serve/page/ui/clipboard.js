// Copies texts.

import { h } from "./dom.js";

const COPIED_MS = 1500;

/**
 * A button that copies a text.
 * @param {string} label
 * @param {() => string} text
 */
export function copyButton(label, text) {
  const button = h("button", { type: "button", "aria-label": label }, "Copy");
  button.addEventListener("click", async () => {
    await copy(text(), button);
    button.textContent = "Copied";
    setTimeout(() => {
      button.textContent = "Copy";
    }, COPIED_MS);
  });
  return button;
}

/**
 * Copies a text. Pages that are not served over TLS have no clipboard but that of a selection, which
 * in a dialog must be inside of it.
 * @param {string} text
 * @param {HTMLElement} beside
 */
async function copy(text, beside) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = h("textarea", { value: text, className: "unseen", "aria-hidden": "true" });
  beside.after(area);
  area.select();
  document.execCommand("copy");
  area.remove();
  beside.focus();
}
