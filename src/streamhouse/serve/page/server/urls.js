// The URLs of the server's resources.

/**
 * The URL of a path of the server, also behind a proxy that serves it below another path.
 * @param {string} path
 */
export function address(path) {
  const found = new URL(document.baseURI);
  found.hash = found.search = "";
  return new URL(path, found);
}

/**
 * The path of a view, or one below it.
 * @param {string} name
 */
export function viewPath(name, below = "") {
  return `views/${encodeURIComponent(name)}${below}`;
}

/**
 * The path of a pipeline, or one below it.
 * @param {string} name
 */
export function pipelinePath(name, below = "") {
  return `pipelines/${encodeURIComponent(name)}${below}`;
}
