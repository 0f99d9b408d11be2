// Formats, parses and classifies values by the type of their column.

/** @typedef {import("../server/responses.d.ts").Cell} Cell */
/** @typedef {"number" | "time" | "nested" | "text"} Kind */

const NUMBERS = /^(TINYINT|SMALLINT|INT|INTEGER|BIGINT|FLOAT|DOUBLE|DECIMAL|NUMERIC)\b/;
const WHOLES = /^(TINYINT|SMALLINT|INT|INTEGER|BIGINT)\b/;
const SINGLE = /^FLOAT\b/;
const DOUBLES = /^DOUBLE\b/;
const TIMES = /^(TIMESTAMP|DATE)\b/;
const NESTED = /^(ARRAY|MAP|ROW|MULTISET|STRUCT|VARIANT)\b/;
const NUMBERED =
  /(^|_)(id|no|nr|key|code|zip|postcode|phone|tel|mobile|fax|year|version|snapshot|port|pid|isbn|ean)$|[a-z](Id|No|Year)$/i;
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
  if (SINGLE.test(upper)) return shortestFloat;
  if (DOUBLES.test(upper)) {
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

/** @param {string} type */
export function isWhole(type) {
  return WHOLES.test(type.toUpperCase());
}

/** @param {string} type */
export function isDouble(type) {
  return DOUBLES.test(type.toUpperCase());
}

/**
 * Whether the whole numbers of a column of this name are names, as ids, years and phone numbers are:
 * they have no separators.
 * @param {string} name
 */
export function isNumbered(name) {
  return NUMBERED.test(name);
}

/**
 * The fewest digits that only this FLOAT has: 0.1, where its value as a DOUBLE is 0.10000000149.
 * @param {Cell} value
 */
function shortestFloat(value) {
  const number = Number(value);
  if (!Number.isFinite(number)) return String(value);
  let shortest = number;
  for (let digits = 1; digits <= 9; digits += 1) {
    shortest = Number(number.toPrecision(digits));
    if (Math.fround(shortest) === Math.fround(number)) break;
  }
  const text = String(shortest);
  if (text.includes("e")) return text;
  const decimals = text.split(".")[1]?.length ?? 0;
  return shortest.toLocaleString(undefined, { minimumFractionDigits: decimals });
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
