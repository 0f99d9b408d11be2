// The order of the list of views: by database, auxiliary tables of queries last.

/** @typedef {import("../server/responses.d.ts").ViewRecord} ViewRecord */

const AUXILIARY_TABLE = /__(lineage|unmatched|pending|late|audit)$/;

/**
 * Whether a query maintains this table for itself, beside its target.
 * @param {string} name
 */
export function isAuxiliaryTable(name) {
  return AUXILIARY_TABLE.test(name);
}

/** @param {string} name */
function database(name) {
  return name.split(".", 1)[0];
}

/**
 * The name within its database.
 * @param {string} name
 */
export function tableName(name) {
  return name.slice(database(name).length + 1);
}

/**
 * The sort key: by database, tables that queries maintain for themselves last.
 * @param {ViewRecord} view
 */
export function sortKey({ name }) {
  return `${database(name)}\u0000${isAuxiliaryTable(name) ? 1 : 0}${name}`;
}

/**
 * The views of each database, in the given order.
 * @param {ViewRecord[]} views
 */
export function byDatabase(views) {
  /** @type {Map<string, ViewRecord[]>} */
  const found = new Map();
  for (const view of views)
    found.set(database(view.name), [...(found.get(database(view.name)) ?? []), view]);
  return found;
}
