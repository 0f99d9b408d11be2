// Animations for changed cells and new rows.

import { numberOf } from "../format/column-values.js";

const FLASH_MS = 1400;

/**
 * Lights up a changed cell, in a colour for a greater, a smaller or another value.
 * @param {HTMLElement} cell
 * @param {import("../rows/row-store.js").RowRecord} record
 * @param {number} index
 */
export function flash(cell, record, index) {
  const [was, is] = [numberOf(record.before?.[index]), numberOf(record.cells[index])];
  const direction =
    cell.classList.contains("number") && was !== null && is !== null
      ? is < was
        ? "down"
        : "up"
      : "set";
  cell.dataset.flash = direction;
  for (const running of cell.getAnimations()) running.cancel();
  const easing = prefersReducedMotion() ? "steps(1, end)" : "ease-out";
  const animation = cell.animate(
    [{ backgroundColor: `var(--flash-${direction})` }, { backgroundColor: "transparent" }],
    { duration: FLASH_MS, easing },
  );
  animation.onfinish = () => delete cell.dataset.flash;
}

/**
 * Slides a new row in.
 * @param {HTMLElement} element
 */
export function arrive(element) {
  element.dataset.flash = "new";
  const moves = prefersReducedMotion() ? {} : { opacity: 0, translate: "0 -10px" };
  const ends = prefersReducedMotion() ? {} : { opacity: 1, translate: "0 0" };
  element.animate(
    [
      { backgroundColor: "var(--flash-up)", ...moves },
      { ...ends, offset: 0.25 },
      { backgroundColor: "transparent" },
    ],
    { duration: FLASH_MS, easing: "ease-out" },
  ).onfinish = () => delete element.dataset.flash;
}

/** Whether the system asks for reduced motion. */
function prefersReducedMotion() {
  return matchMedia("(prefers-reduced-motion: reduce)").matches;
}
