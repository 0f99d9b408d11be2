// The page: opens the screen that the address names, runs shortcuts, and shows messages around it.

import { ScriptEditor } from "./editor/script-editor.js";
import { OverviewScreen } from "./overview/overview-screen.js";
import { PipelinesScreen } from "./pipelines/pipelines-screen.js";
import { askWith, json } from "./server/requests.js";
import { QueryScreen } from "./sql/query-screen.js";
import { put, say } from "./ui/dom.js";
import { listenForShortcuts } from "./ui/keyboard-shortcuts.js";
import { empty, skeleton } from "./ui/placeholder.js";
import { applyStoredTheme, toggleTheme } from "./ui/theme.js";
import { tokenPrompt } from "./ui/token-dialog.js";
import { showNoOpenView } from "./views/no-open-view.js";
import { ViewList } from "./views/view-list.js";
import { ViewScreen } from "./views/view-screen.js";

/** @typedef {import("./server/responses.d.ts").Health} Health */

/**
 * A screen; `key` and `escape` return whether they handled the key.
 * @typedef {Object} Shown
 * @property {() => void} [close]
 * @property {(name: string) => boolean} [key]
 * @property {() => boolean} [escape]
 */

/**
 * The elements of index.html that need a narrower type than HTMLElement, by id.
 * @typedef {{ shortcuts: HTMLDialogElement, token: HTMLDialogElement, "token-text": HTMLInputElement,
 *   "single-keys": HTMLInputElement }} Special
 */

const NOTICE_MS = 6000;

/**
 * @template {string} Id
 * @param {Id} id one of index.html
 */
const byId = (id) =>
  /** @type {Id extends keyof Special ? Special[Id] : HTMLElement} */ (document.getElementById(id));
const main = byId("main");
const shortcuts = byId("shortcuts");
/** @type {NodeListOf<HTMLAnchorElement>} */
const screenLinks = document.querySelectorAll("a[data-screen]");

/** @type {Shown | null} */
let screen = null;
let currentRoute = "";
let noticeTimer = 0;
/** @type {string | null} */
let lastView = null;

const views = new ViewList(byId("side"), () => {
  // The address may name a view that was not in the list until now.
  if (currentRoute === "waiting") route();
});

/**
 * The link to a table's view on this page; null if the server does not serve it.
 * @param {string} name
 */
function linkTo(name) {
  return views.find(name) ? `#/views/${encodeURIComponent(name)}` : null;
}

/**
 * Shows a message at the foot of the page for some seconds.
 * @param {string} text
 */
function notify(text) {
  say(byId("said"), text);
  clearTimeout(noticeTimer);
  noticeTimer = setTimeout(() => say(byId("said"), ""), NOTICE_MS);
}

/** @param {string | null} text */
function lost(text) {
  say(byId("lost"), text === null ? "" : `Connection lost, reconnecting: ${text}`);
}

/** @type {import("./views/view-screen.js").ViewTools} */
const tools = {
  note: (...given) => views.note(...given),
  summary: (text) => say(byId("summary"), text),
  say: notify,
  lost,
  reload: async (old) => {
    await views.load();
    const found = views.find(old.name);
    if (found && JSON.stringify(found.columns) !== JSON.stringify(old.columns)) {
      currentRoute = "";
      route();
    }
  },
};

function route() {
  const [, path, second = ""] = location.hash.split("/");
  const first = path || "overview";
  const name = decoded(second);
  const newRoute = `${first}/${name}`;
  if (currentRoute === newRoute) return;
  const held = document.activeElement;
  screen?.close?.();
  screen = null;
  lost(null);
  byId("frame").dataset.screen = first;
  byId("frame").dataset.open = name;
  for (const link of screenLinks) {
    if (link.dataset.screen === first) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  currentRoute = newRoute;
  document.title = `${name || titleOf(first)} · Streamhouse`;
  main.scrollTop = 0;
  if (first === "overview") {
    views.open(null);
    screen = new OverviewScreen(main, () => views.own, health, lost);
  } else if (first === "pipelines")
    screen = new PipelinesScreen(main, name || null, { link: linkTo, say: notify, lost }, allowed);
  else if (first === "sql")
    screen = new QueryScreen(main, lastView ?? views.names[0] ?? null, {
      views: () => views.own,
      ready: views.ready,
      health,
      say: notify,
    });
  else if (first === "editor") screen = new ScriptEditor(main, linkTo, notify, allowed);
  else openView(name);
  keepFocus(held);
}

/**
 * Moves the focus of a removed element to the screen, or on a phone to the list.
 * @param {Element | null} held
 */
function keepFocus(held) {
  if (held === document.body || held?.checkVisibility()) return;
  if (main.checkVisibility()) main.focus({ preventScroll: true });
  else views.focus(lastView);
}

/** @param {string} screen */
function titleOf(screen) {
  return screen === "sql" ? "SQL" : screen.charAt(0).toUpperCase() + screen.slice(1);
}

/** @param {string} text */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** @param {string} name */
function openView(name) {
  views.open(name || null);
  const found = name ? views.find(name) : null;
  if (found?.error) {
    currentRoute = "waiting";
    put(main, empty(`${name} cannot be shown`, found.error));
    return;
  }
  if (found) {
    lastView = name;
    screen = new ViewScreen(main, found, tools);
    return;
  }
  // Routed again when the list changes: a script that has just started may create the view.
  currentRoute = "waiting";
  if (!views.loaded) put(main, skeleton(10));
  else if (!name) first();
  else showNoOpenView(main, views.names, name);
}

/** Opens the last view or the first one, except on a phone, which shows the list first. */
function first() {
  const names = views.names;
  const chosen = lastView !== null && names.includes(lastView) ? lastView : names[0];
  if (names.length && !onPhone()) location.replace(`#/views/${encodeURIComponent(chosen)}`);
  else showNoOpenView(main, names);
}

function onPhone() {
  return matchMedia("(max-width: 700px)").matches;
}

/**
 * Runs the action of a key, if the page or the screen has one; returns whether it did.
 * @param {string} key
 */
function act(key) {
  /** @type {{ [key: string]: () => void }} */
  const actions = {
    "/": () => views.search.focus(),
    j: () => views.move(1),
    k: () => views.move(-1),
    o: () => go("#/"),
    v: () => go("#/views"),
    s: () => go("#/sql"),
    p: () => go("#/pipelines"),
    e: () => go("#/editor"),
    t: toggleTheme,
    "?": () => shortcuts.showModal(),
  };
  if (actions[key]) {
    actions[key]();
    return true;
  }
  return screen?.key?.(key) ?? false;
}

/** @param {string} hash */
function go(hash) {
  location.hash = hash;
}

/** @param {KeyboardEvent} event */
function onEscape(event) {
  const [, first, second] = location.hash.split("/");
  if (event.target === views.search) views.search.blur();
  else if (!screen?.escape?.() && second && (first !== "views" || onPhone())) go(`#/${first}`);
}

/**
 * The server's `/health`, most of which needs the token, if the server has tokens.
 * @returns {Promise<Health | null>}
 */
async function aboutServer() {
  const requestHealth = () => json("health").catch(() => null);
  const response = /** @type {Health | null} */ (await requestHealth());
  if (!response?.token_needed || response.limits) return response;
  await views.ready;
  return /** @type {Health | null} */ (await requestHealth());
}

askWith(tokenPrompt(byId("token"), byId("token-text"), byId("token-why")));
applyStoredTheme();
byId("theme").addEventListener("click", toggleTheme);
byId("help").addEventListener("click", () => shortcuts.showModal());
byId("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
addEventListener("hashchange", route);
listenForShortcuts(byId("single-keys"), act, onEscape);
const health = aboutServer();
const allowed = health.then((response) => response?.allow_run ?? null);
route();
