// Groups all rows of a large view, by queries that the server runs.

import { numberOf, timeOf } from "../format/column-values.js";
import { literal, quoted, select, tableOf } from "../server/view-query.js";
import { byValue } from "./row-groups.js";
import { stepFor } from "./time-steps.js";

/** @typedef {import("./row-groups.js").Grouping} Grouping */
/** @typedef {import("./row-groups.js").LargestGroups} LargestGroups */
/** @typedef {import("./row-groups.js").TimeGroups} TimeGroups */
/** @typedef {import("../server/responses.d.ts").Row} Row */
/** @typedef {import("../server/responses.d.ts").TypedColumn} TypedColumn */

/**
 * The rows of a view to draw: those that fulfil the condition `filter` (empty: all) at a snapshot.
 * @typedef {{ view: string, snapshot: number | null, filter: string }} ServerRows
 */

const MAX_BINS = 2000;
const MINUTE_MS = 60_000;

export class ServerGroups {
  #columns;
  #from;
  #conditions;
  #signal;

  /**
   * @param {TypedColumn[]} columns
   * @param {ServerRows} rows
   * @param {AbortSignal} signal
   */
  constructor(columns, { view, snapshot, filter }, signal) {
    this.#columns = columns;
    this.#from = tableOf(view, snapshot);
    this.#conditions = filter ? [filter] : [];
    this.#signal = signal;
  }

  /**
   * The `most` groups with the largest absolute values. Throws `Problem`.
   * @param {Grouping} grouping
   * @param {number} most
   * @returns {Promise<LargestGroups>}
   */
  async largest(grouping, most) {
    const names = this.#names(grouping.by);
    const keys = names.map((name, at) => `${name} AS k${at}`).join(", ");
    const value = grouping.single
      ? quotedOf(this.#columns, grouping.measure)
      : this.#aggregate(grouping);
    const groups = grouping.single ? "" : ` GROUP BY ${names.join(", ")}`;
    const all = `SELECT ${keys}, ${value} AS v FROM ${this.#where(this.#withValue(grouping))}${groups}`;
    const [{ rows }, counted] = await Promise.all([
      this.#select(`SELECT * FROM (${all}) ORDER BY ABS(v) DESC LIMIT ${most}`),
      this.#select(`SELECT COUNT(*) AS n FROM (${all})`),
    ]);
    const items = rows.flatMap((row) => {
      const size = numberOf(row.v);
      return size === null ? [] : [{ label: labelOf(row, names.length), value: size, cell: row.v }];
    });
    return { items: byValue(items), of: Number(counted.rows[0].n) };
  }

  /**
   * The groups over the time column, in buckets; those with the largest values. Throws `Problem`.
   * @param {Grouping} grouping
   * @param {number} most the largest number of lines
   * @returns {Promise<TimeGroups>}
   */
  async overTime(grouping, most) {
    const time = quotedOf(this.#columns, grouping.time);
    const known = [...this.#withValue(grouping), `${time} IS NOT NULL`];
    const range = await this.#select(
      `SELECT MIN(${time}) AS a, MAX(${time}) AS b FROM ${this.#where(known)}`,
    );
    const [from, to] = [timeOf(range.rows[0].a), timeOf(range.rows[0].b)];
    if (from === null || to === null) return { series: [], of: 0, step: 0 };
    const step = Math.max(1000, grouping.step || stepFor(from, to));
    if ((to - from) / step > MAX_BINS) return this.overTime({ ...grouping, step: 0 }, most);
    const names = this.#names(grouping.by);
    const { lines, conditions, of } = await this.#largestLines(grouping, names, known, most);
    const bin = binOf(time, this.#columns[grouping.time].type, step);
    const keys = names.map((name, at) => `CAST(${name} AS STRING) AS k${at}, `).join("");
    const { rows } = await this.#select(
      `SELECT ${keys}${bin} AS bin, ${this.#aggregate(grouping)} AS v ` +
        `FROM ${this.#where([...known, ...anyOf(conditions)])} ` +
        `GROUP BY ${[...names, bin].join(", ")} ORDER BY bin`,
    );
    /** @type {Map<string, [number, number][]>} */
    const points = new Map(lines.map((label) => [label, []]));
    for (const row of rows) {
      const [label, value] = [labelOf(row, names.length), numberOf(row.v)];
      if (value === null) continue;
      points.get(label)?.push([Number(row.bin) * step, value]);
    }
    const series = [...points].map(([label, each]) => ({ label, points: each }));
    return { series: series.filter((one) => one.points.length), of, step };
  }

  /**
   * The labels and the conditions of the lines with the largest values, and how many lines there are.
   * @param {Grouping} grouping
   * @param {string[]} names
   * @param {string[]} known
   * @param {number} most
   */
  async #largestLines(grouping, names, known, most) {
    if (!names.length) return { lines: [""], conditions: [], of: 1 };
    const texts = names.map((name) => `CAST(${name} AS STRING)`);
    const size =
      grouping.measure < 0 ? "COUNT(*)" : `SUM(ABS(${quotedOf(this.#columns, grouping.measure)}))`;
    const all =
      `SELECT ${texts.map((text, at) => `${text} AS k${at}`).join(", ")}, ${size} AS v ` +
      `FROM ${this.#where(known)} GROUP BY ${texts.join(", ")}`;
    const [{ rows }, counted] = await Promise.all([
      this.#select(`SELECT * FROM (${all}) ORDER BY v DESC LIMIT ${most}`),
      this.#select(`SELECT COUNT(*) AS n FROM (${all})`),
    ]);
    const conditions = rows.map((row) =>
      texts
        .map((text, at) => {
          const key = row[`k${at}`];
          return key === null ? `${text} IS NULL` : `${text} = ${literal(String(key))}`;
        })
        .join(" AND "),
    );
    const lines = rows.map((row) => labelOf(row, names.length));
    return { lines, conditions, of: Number(counted.rows[0].n) };
  }

  /** @param {string} sql */
  #select(sql) {
    return select(sql, this.#signal);
  }

  /** @param {number[]} at */
  #names(at) {
    return at.map((index) => quotedOf(this.#columns, index));
  }

  /** @param {Grouping} grouping */
  #aggregate({ aggregate, measure }) {
    if (aggregate === "count") return "COUNT(*)";
    return `${aggregate.toUpperCase()}(${quotedOf(this.#columns, measure)})`;
  }

  /** @param {Grouping} grouping */
  #withValue({ aggregate, measure }) {
    return aggregate === "count" ? [] : [`${quotedOf(this.#columns, measure)} IS NOT NULL`];
  }

  /** @param {string[]} more */
  #where(more) {
    const all = [...this.#conditions, ...more];
    return all.length
      ? `${this.#from} WHERE ${all.map((each) => `(${each})`).join(" AND ")}`
      : this.#from;
  }
}

/**
 * @param {TypedColumn[]} columns
 * @param {number} at
 */
function quotedOf(columns, at) {
  return quoted(columns[at].name);
}

/** @param {string[]} conditions */
function anyOf(conditions) {
  return conditions.length ? [conditions.map((each) => `(${each})`).join(" OR ")] : [];
}

/**
 * The number of a bucket. The difference in seconds is an INT, which ends in 2038.
 * @param {string} time
 * @param {string} type
 * @param {number} step
 */
function binOf(time, type, step) {
  const [unit, ms] = step % MINUTE_MS ? ["SECOND", 1000] : ["MINUTE", MINUTE_MS];
  const at = /^DATE\b/i.test(type) || /LTZ/i.test(type) ? `CAST(${time} AS TIMESTAMP(3))` : time;
  const difference = `TIMESTAMPDIFF(${unit}, TIMESTAMP '1970-01-01 00:00:00', ${at})`;
  return `FLOOR(CAST(${difference} AS DOUBLE) / ${step / ms})`;
}

/**
 * @param {Row} row
 * @param {number} keys
 */
function labelOf(row, keys) {
  return Array.from({ length: keys }, (_, at) => String(row[`k${at}`] ?? "null")).join(" · ");
}
