// The SQL condition of a filter by words, over all rows of a large view.

import { kindOf } from "../format/column-values.js";
import { literal, quoted } from "../server/view-query.js";

/** @typedef {import("../server/responses.d.ts").TypedColumn} TypedColumn */

const BINARY = /^(BYTES|BINARY|VARBINARY)\b/i;
const NUMERIC = /^[\d.,:+\-e\u00a0\u202f’']+$/;
const GROUP = new Intl.NumberFormat().formatToParts(1111).find(({ type }) => type === "group");

/**
 * The condition that each word is found in a column of a row; empty without words. Nested and binary
 * columns are not searched.
 * @param {TypedColumn[]} columns
 * @param {string[]} words in lower case
 */
export function wordsCondition(columns, words) {
  return words.map((word) => `(${found(columns, word).join(" OR ") || "FALSE"})`).join(" AND ");
}

/**
 * The conditions that a column has a word. Numbers and times are only searched for what they can
 * contain, since their texts are slow to make.
 * @param {TypedColumn[]} columns
 * @param {string} word
 */
function found(columns, word) {
  return columns.flatMap(({ name, type }) => {
    const kind = kindOf(type);
    if (kind === "nested" || BINARY.test(type)) return [];
    const text = `CAST(${quoted(name)} AS STRING)`;
    if (kind === "text") return [`LOCATE(${literal(word)}, LOWER(${text})) > 0`];
    if (!NUMERIC.test(word) && !"infinity nan".includes(word)) return [];
    return spellings(word).map((each) => `LOCATE(${literal(each)}, LOWER(${text})) > 0`);
  });
}

/**
 * A word, and without the separators of a number, which only the page writes.
 * @param {string} word
 */
function spellings(word) {
  const plain = GROUP ? word.replaceAll(GROUP.value, "") : word;
  return plain !== word && /^-?\d+(\.\d*)?$/.test(plain) ? [word, plain] : [word];
}
