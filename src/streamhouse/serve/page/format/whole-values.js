// The whole value of a cell as text: JSON indented, bytes as a hex dump, invisible characters shown.

import { jsonText, kindOf } from "./column-values.js";

/** @typedef {import("../server/responses.d.ts").Cell} Cell */

/** @typedef {{ text: string, isInvisible: boolean }} Piece a part of a text */

const BINARY = /^(BYTES|BINARY|VARBINARY)\b/i;
const TEXT = /^(STRING|VARCHAR|CHAR)\b/i;
const LINE_BYTES = 16;
// Controls, zero-width characters, marks of direction, and unusual spaces.
const MARKS =
  "[\\u0000-\\u0009\\u000b-\\u001f\\u007f-\\u00a0\\u00ad\\u061c\\u1680\\u2000-\\u200f\\u2028-\\u202f\\u205f-\\u206f\\u3000\\ufeff]";
const INVISIBLE = new RegExp(`(${MARKS})`);
const INVISIBLE_OR_SPACES = new RegExp(`(${MARKS}|^ +| +$| {2,})`);

/**
 * The whole value, to show and to copy; `isArranged`: its spaces are not those of the value.
 * @param {Cell} value
 * @param {string} type
 * @returns {{ text: string, isArranged: boolean }}
 */
export function wholeText(value, type) {
  if (value === null || value === undefined) return { text: "null", isArranged: false };
  if (BINARY.test(type)) return { text: hexDump(String(value)), isArranged: true };
  const isNested = kindOf(type) === "nested" || typeof value === "object";
  const text = isNested ? jsonText(value) : String(value);
  const isJson = isNested || (TEXT.test(type) && /^\s*[[{]/.test(text));
  const arranged = isJson ? indented(text) : null;
  return { text: arranged ?? text, isArranged: arranged !== null };
}

/**
 * JSON with indents; null for other text, and if parsing would change a value, as it does with long
 * numbers, decimals and repeated keys.
 * @param {string} text
 */
function indented(text) {
  try {
    const found = JSON.parse(text);
    const isSame = JSON.stringify(found).replace(/\s+/g, "") === text.replace(/\s+/g, "");
    return isSame ? JSON.stringify(found, null, 2) : null;
  } catch {
    return null;
  }
}

/** @param {string} base64 */
function hexDump(base64) {
  const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  const lines = [];
  for (let at = 0; at < bytes.length; at += LINE_BYTES) {
    const some = [...bytes.slice(at, at + LINE_BYTES)];
    const hex = some.map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const letters = some.map((byte) => (byte > 31 && byte < 127 ? String.fromCharCode(byte) : "."));
    const place = at.toString(16).padStart(6, "0");
    lines.push(`${place}  ${hex.padEnd(3 * LINE_BYTES - 1)}  ${letters.join("")}`);
  }
  return lines.join("\n") || "(no bytes)";
}

/**
 * A text in pieces; those that would not be seen are written as their code points, spaces at its ends
 * and repeated ones as dots.
 * @param {{ text: string, isArranged: boolean }} whole
 * @returns {Piece[]}
 */
export function visiblePieces({ text, isArranged }) {
  // Every second part is one that the pattern matches.
  return text
    .split(isArranged ? INVISIBLE : INVISIBLE_OR_SPACES)
    .map((part, at) => ({
      text: at % 2 ? [...part].map(named).join("") : part,
      isInvisible: at % 2 === 1,
    }))
    .filter((piece) => piece.text);
}

/** @param {string} letter */
function named(letter) {
  if (letter === " ") return "·";
  return `U+${(letter.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0")}`;
}
