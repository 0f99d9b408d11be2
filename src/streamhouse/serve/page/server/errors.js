// Error responses of the server: their message, status, and position in a text.

/** @typedef {import("./responses.d.ts").ErrorBody} ErrorBody */

/**
 * An error in a text; line and column count from 1.
 * @typedef {{ message: string, line?: number | null, column?: number | null }} SqlError
 */

/** An error response; `more` is the whole object under `error`. */
class Problem extends Error {
  /**
   * @param {number} status
   * @param {ErrorBody | null} error
   */
  constructor(status, error) {
    super(error?.message ?? `the server responded with status ${status}`);
    this.status = status;
    /** @type {Partial<ErrorBody>} */
    this.more = error ?? {};
  }
}

/**
 * @param {number} status
 * @param {string} text
 */
export function problemOf(status, text) {
  try {
    return new Problem(status, JSON.parse(text).error);
  } catch {
    return new Problem(status, null);
  }
}

/**
 * The message of a failed request.
 * @param {unknown} problem
 */
export function messageOf(problem) {
  if (problem instanceof TypeError) return "The server does not respond.";
  return problem instanceof Error ? problem.message : String(problem);
}

/**
 * The HTTP status of an error response; null for other errors.
 * @param {unknown} problem
 */
export function statusOf(problem) {
  return problem instanceof Problem ? problem.status : null;
}

/**
 * The error of a text that the server rejected, with its line and column, if there are any.
 * @param {unknown} problem
 * @returns {SqlError}
 */
export function sqlErrorOf(problem) {
  const { line, column } = problem instanceof Problem ? problem.more : {};
  return { message: messageOf(problem), line, column };
}
