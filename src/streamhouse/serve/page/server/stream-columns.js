// The names of columns in a stream, where some are reserved.

/** @typedef {import("./responses.d.ts").Row} Row */

/**
 * All rows, or changes. `plain`: the columns have their own names, not those of a stream.
 * @typedef {{ type: "snapshot" | "changes", plain?: boolean, rows: Row[] }} RowsEvent
 */

const RESERVED = ["rowkind", "snapshot"];

/**
 * The columns' names in a stream, which appends underscores to reserved ones.
 * @param {string[]} names
 */
export function streamNames(names) {
  const taken = new Set([...names, ...RESERVED]);
  return names.map((name) => {
    if (!RESERVED.includes(name)) return name;
    let other = name;
    while (taken.has(other)) other += "_";
    taken.add(other);
    return other;
  });
}

/**
 * Whether the rows of an event have different columns.
 * @param {RowsEvent} event
 * @param {string[]} names
 */
export function hasOtherColumns({ rows: [row], plain }, names) {
  if (!row) return false;
  const expected = plain ? names : [...streamNames(names), "rowkind"];
  return expected.length !== Object.keys(row).length || expected.some((name) => !(name in row));
}
