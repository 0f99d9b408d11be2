// Parses JSON without losing digits of a BIGINT.

/**
 * `JSON.parse` that keeps all digits of a BIGINT.
 * @param {string} text
 * @returns {unknown}
 */
export function parse(text) {
  if (!/\d{16}/.test(text)) return JSON.parse(text);
  return JSON.parse(text, exact);
}

/**
 * @param {string} _
 * @param {unknown} value
 * @param {{ source?: string }} [context] missing in older browsers
 */
function exact(_, value, context) {
  if (typeof value !== "number" || Number.isSafeInteger(value)) return value;
  const source = context?.source ?? "";
  return /^-?\d+$/.test(source) ? BigInt(source) : value;
}
