// The script in the editor and its name, stored until the tab is closed.

const SCRIPT = "streamhouse.script";
const NAME = "streamhouse.script.name";

/** Null for what was not stored yet. */
export function draft() {
  return { name: sessionStorage.getItem(NAME), script: sessionStorage.getItem(SCRIPT) };
}

/** @param {string} script */
export function keepScript(script) {
  sessionStorage.setItem(SCRIPT, script);
}

/** @param {string} name */
export function keepName(name) {
  sessionStorage.setItem(NAME, name);
}
