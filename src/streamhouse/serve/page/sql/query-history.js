// The last queries of this browser.

const KEY = "streamhouse.queries";
const MOST = 50;

/**
 * The newest first.
 * @returns {string[]}
 */
export function lastQueries() {
  try {
    const found = JSON.parse(localStorage.getItem(KEY) ?? "[]");
    return Array.isArray(found) ? found.filter((each) => typeof each === "string") : [];
  } catch {
    return [];
  }
}

/** @param {string} sql */
export function rememberQuery(sql) {
  const others = lastQueries().filter((each) => each !== sql);
  localStorage.setItem(KEY, JSON.stringify([sql, ...others].slice(0, MOST)));
}

export function forgetQueries() {
  localStorage.removeItem(KEY);
}
