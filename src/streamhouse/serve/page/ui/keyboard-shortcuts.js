// Single-key shortcuts, which the user can disable.

const KEYS = "streamhouse.keys";

/**
 * Handles the shortcuts, except while the focus is in a text field.
 * @param {HTMLInputElement} box enables them; its state is stored
 * @param {(key: string) => boolean} act runs the action of a key; returns whether there is one
 * @param {(event: KeyboardEvent) => void} escape
 */
export function listenForShortcuts(box, act, escape) {
  keepChoice(box);
  addEventListener("keydown", (event) => {
    // On many keyboards [ and ] are typed with AltGr, which counts as Ctrl and Alt.
    const held =
      (event.ctrlKey || event.metaKey || event.altKey) && !event.getModifierState("AltGraph");
    if (held || document.querySelector("dialog[open]")) return;
    if (event.key === "Escape") escape(event);
    else if (!isTyped(event.target) && box.checked && act(event.key)) event.preventDefault();
  });
}

/**
 * Speech input may trigger single-key shortcuts by accident, so they can be disabled.
 * @param {HTMLInputElement} box
 */
function keepChoice(box) {
  box.checked = localStorage.getItem(KEYS) !== "off";
  box.addEventListener("change", () => localStorage.setItem(KEYS, box.checked ? "on" : "off"));
}

/**
 * Whether the element takes text input.
 * @param {EventTarget | null} target
 */
function isTyped(target) {
  if (target instanceof HTMLInputElement) return target.type !== "range";
  return target instanceof HTMLTextAreaElement || target instanceof HTMLSelectElement;
}
