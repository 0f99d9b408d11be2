// Syntax highlighting of SQL: keywords, strings, numbers and comments as coloured elements.

import { h } from "../ui/dom.js";

const TOKENS =
  /(?<comment>--[^\n]*|\/\*[^]*?(?:\*\/|$))|(?<string>'(?:[^']|'')*'?)|(?<quoted>`[^`]*`?)|(?<number>\b\d+(?:\.\d+)?\b)|(?<word>\b[A-Za-z_]\w*\b)/g;
/** The words that are highlighted, in capitals. */
export const KEYWORDS = new Set(
  (
    "ADD ALL ALTER AND ANTI AS ASC BEGIN BETWEEN BY CALL CASE CAST CATALOG COLUMN CONSTRAINT CREATE CROSS DATABASE DELETE DESC DESCRIBE DISTINCT DROP ELSE END " +
    "ENFORCED EXECUTE EXISTS FALSE FOR FROM FULL GROUP HAVING IF IN INNER INSERT INTERVAL INTO IS JOIN KEY LEFT LIKE LIMIT MATCHED MERGE NOT NULL OF ON OR ORDER " +
    "OUTER OVERWRITE PARTITION PARTITIONED PRIMARY RENAME RESET RIGHT SELECT SET SHOW SOURCE STATEMENT SYSTEM_TIME TABLE TEMPORARY THEN TO TRUE UNION UPDATE USE " +
    "USING VALUES VIEW WATERMARK WHEN WHERE WITH ARRAY BIGINT BINARY BOOLEAN BYTES CHAR DATE DECIMAL DOUBLE FLOAT INT MAP PROCTIME ROW SMALLINT STRING TIME TIMESTAMP " +
    "TIMESTAMP_LTZ TINYINT VARCHAR"
  ).split(" "),
);

/**
 * A text with its tokens in elements of the class of their kind.
 * @param {string} text
 */
export function highlighted(text) {
  const parts = [];
  let end = 0;
  for (const found of text.matchAll(TOKENS)) {
    const kind = kindOf(found);
    if (kind === "word" && !KEYWORDS.has(found[0].toUpperCase())) continue;
    parts.push(text.slice(end, found.index), h("span", { className: `tok-${kind}` }, found[0]));
    end = found.index + found[0].length;
  }
  return [...parts, text.slice(end)];
}

/**
 * The name of the group of TOKENS that matched.
 * @param {RegExpExecArray} found
 */
function kindOf({ groups = {} }) {
  return Object.keys(groups).find((name) => groups[name] !== undefined);
}
