// Formats numbers and counts.

const WHOLE = new Intl.NumberFormat(undefined, { maximumFractionDigits: 0 });
const SHORT = new Intl.NumberFormat(undefined, {
  notation: "compact",
  maximumSignificantDigits: 3,
});

/** @param {number} number */
export function whole(number) {
  return WHOLE.format(number);
}

/** @param {number} number */
export function short(number) {
  return SHORT.format(number);
}

/**
 * "1 row", "3 rows".
 * @param {number} number
 * @param {string} word
 */
export function count(number, word) {
  return `${whole(number)} ${word}${number === 1 ? "" : "s"}`;
}
