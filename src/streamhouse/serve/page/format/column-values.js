// Formats, parses and classifies values by the type of their column.

/** @typedef {import("../server/responses.d.ts").Cell} Cell */
/** @typedef {"number" | "time" | "nested" | "text"} Kind */

const NUMBERS = /^(TINYINT|SMALLINT|INT|INTEGER|BIGINT|FLOAT|DOUBLE|DECIMAL|NUMERIC)\b/;
const FLOATS = /^(FLOAT|DOUBLE)\b/;
const TIMES = /^(TIMESTAMP|DATE)\b/;
const NESTED = /^(ARRAY|MAP|ROW|MULTISET|STRUCT|VARIANT)\b/;
const SCALE = /^(?:DECIMAL|NUMERIC)\s*\(\s*\d+\s*,\s*(\d+)\s*\)/;

/**
 * @param {string} type
 * @returns {Kind}
 */
export function kindOf(type) {
  const upper = type.toUpperCase();
  if (NUMBERS.test(upper)) return "number";
  if (TIMES.test(upper)) return "time";
  return NESTED.test(upper) ? "nested" : "text";
}

/**
 * A formatter of a column's values; `largest` is the largest absolute value, which sets the
 * decimals of floats.
 * @param {string} type
 * @returns {(value: Cell) => string}
 */
export function formatter(type, largest = 0) {
  const upper = type.toUpperCase();
  if (FLOATS.test(upper)) {
    const digits = largest > 0 ? Math.min(12, Math.max(2, 2 - Math.floor(Math.log10(largest)))) : 2;
    const format = new Intl.NumberFormat(undefined, {
      minimumFractionDigits: digits,
      maximumFractionDigits: digits,
    });
    return (value) => {
      const number = Number(value);
      return Math.abs(number) >= 1e15 ? String(value) : format.format(number);
    };
  }
  const scale = SCALE.exec(upper);
  if (scale || NUMBERS.test(upper)) {
    const digits = Number(scale?.[1] ?? 0);
    const format = new Intl.NumberFormat(undefined, {
      minimumFractionDigits: digits,
      maximumFractionDigits: digits,
    });
    // DECIMAL arrives as a string, of which Intl formats all digits.
    return (value) => format.format(/** @type {number | Intl.StringNumericLiteral} */ (value));
  }
  if (upper.startsWith("TIMESTAMP")) return (value) => String(value).replace("T", " ");
  return (value) => (typeof value === "object" ? jsonText(value) : String(value));
}

/**
 * JSON of a nested value, which may contain BigInts.
 * @param {Cell} value
 */
export function jsonText(value) {
  return JSON.stringify(value, (_, each) => (typeof each === "bigint" ? String(each) : each));
}

/**
 * The value as a number to draw; null if it is none.
 * @param {Cell} value
 */
export function numberOf(value) {
  if (value === null || value === undefined || value === "") return null;
  const found = Number(value);
  return Number.isFinite(found) ? found : null;
}

/**
 * Milliseconds since 1970 of a time; one without zone is UTC.
 * @param {Cell} value
 */
export function timeOf(value) {
  if (value === null || value === undefined) return null;
  const text = String(value);
  const found = Date.parse(/Z$|[+-]\d\d:\d\d$/.test(text) || text.length <= 10 ? text : `${text}Z`);
  return Number.isNaN(found) ? null : found;
}
