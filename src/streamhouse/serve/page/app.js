// The page: which screen is shown, colours, keys, and what is said around the screens.

import { askWith, json } from "./server.js";
import { empty, put, say } from "./dom.js";
import { Editor } from "./editor.js";
import { Pipelines } from "./pipelines.js";
import { Sql } from "./sql.js";
import { View, welcome } from "./view.js";
import { Views } from "./views.js";

const THEME = "streamhouse.theme";
const KEYS = "streamhouse.keys";
const SAID_MS = 6000;

const byId = (id) => document.getElementById(id);
const main = byId("main");
const shortcuts = byId("shortcuts");

let screen = null;
let shown = "";
let unsaid = 0;
let health;
let allowed;
let lastView = null;

const views = new Views(byId("side"), () => {
  // A view that was asked for before it was there, or before the list was.
  if (shown === "waiting") route();
});

/** The address of a table's view on this page; null if it is not served. */
function linkTo(name) {
  return name && views.find(name) ? `#/views/${encodeURIComponent(name)}` : null;
}

/** A sentence at the foot of the page, for a while. */
function tell(text) {
  say(byId("said"), text);
  clearTimeout(unsaid);
  unsaid = setTimeout(() => say(byId("said"), ""), SAID_MS);
}

function lost(text) {
  say(byId("lost"), text === null ? "" : `Connection lost, trying again: ${text}`);
}

const tools = {
  note: (...given) => views.note(...given),
  summary: (text) => say(byId("summary"), text),
  say: tell,
  lost,
  /** The view has other columns than were known: it is drawn anew with those. */
  reload: async (old) => {
    await views.load();
    const found = views.find(old.name);
    if (found && JSON.stringify(found.columns) !== JSON.stringify(old.columns)) {
      shown = "";
      route();
    }
  },
};

function route() {
  const [, asked, second = ""] = location.hash.split("/");
  const first = asked || "views";
  const name = decoded(second);
  const wanted = `${first}/${name}`;
  if (shown === wanted) return;
  const held = document.activeElement;
  screen?.close?.();
  screen = null;
  lost(null);
  byId("frame").dataset.screen = first;
  byId("frame").dataset.open = name;
  for (const link of document.querySelectorAll("[data-screen]")) {
    if (link.tagName !== "A") continue;
    if (link.dataset.screen === first) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  shown = wanted;
  document.title = `${name || titleOf(first)} · Streamhouse`;
  main.scrollTop = 0;
  if (first === "pipelines")
    screen = new Pipelines(main, name || null, { link: linkTo, say: tell, lost }, allowed);
  else if (first === "sql") screen = new Sql(main, lastView ?? views.names[0] ?? null, health);
  else if (first === "editor") screen = new Editor(main, linkTo, tell, allowed);
  else openView(name);
  keepFocus(held);
}

/** Where what had the focus is gone, it goes to the screen, or on a phone to the list. */
function keepFocus(held) {
  if (held === document.body || held?.checkVisibility()) return;
  if (main.checkVisibility()) main.focus({ preventScroll: true });
  else views.focus(lastView);
}

function titleOf(screen) {
  return screen === "sql" ? "SQL" : screen.charAt(0).toUpperCase() + screen.slice(1);
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function openView(name) {
  views.open(name || null);
  const found = name ? views.find(name) : null;
  if (found?.error) {
    shown = "waiting";
    put(main, empty(`${name} cannot be shown`, found.error));
    return;
  }
  if (found) {
    lastView = name;
    screen = new View(main, found, tools);
    return;
  }
  // Shown until the list has it: it may be the first table of a script that has just begun.
  shown = "waiting";
  if (!views.loaded) put(main);
  else if (!name) first();
  else welcome(main, views.names, name);
}

/** Without a choice the last one or the first is opened, but on a phone, where the list comes first. */
function first() {
  const names = views.names;
  const chosen = names.includes(lastView) ? lastView : names[0];
  if (names.length && !onPhone()) location.replace(`#/views/${encodeURIComponent(chosen)}`);
  else welcome(main, names);
}

function onPhone() {
  return matchMedia("(max-width: 700px)").matches;
}

function toggleTheme() {
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const now = root.dataset.theme ?? (dark ? "dark" : "light");
  setTheme(now === "dark" ? "light" : "dark");
}

function setTheme(name) {
  if (name) {
    document.documentElement.dataset.theme = name;
    localStorage.setItem(THEME, name);
  }
}

/** Keys that work everywhere but where somebody types. */
function onKey(event) {
  // On many keyboards [ and ] are typed with AltGr, which counts as Ctrl and Alt.
  const held =
    (event.ctrlKey || event.metaKey || event.altKey) && !event.getModifierState("AltGraph");
  if (held || document.querySelector("dialog[open]")) return;
  const typing =
    /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName) && event.target.type !== "range";
  if (event.key === "Escape") onEscape(event);
  else if (!typing && byId("single-keys").checked && act(event.key)) event.preventDefault();
}

function act(key) {
  const actions = {
    "/": () => views.search.focus(),
    j: () => views.move(1),
    k: () => views.move(-1),
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

function go(hash) {
  location.hash = hash;
}

function onEscape(event) {
  const [, first, second] = location.hash.split("/");
  if (event.target === views.search) event.target.blur();
  else if (!screen?.escape?.() && second && (first !== "views" || onPhone())) go(`#/${first}`);
}

/** Asks for a token until one is given. */
function askForToken(why) {
  const dialog = byId("token");
  const text = byId("token-text");
  if (why) say(byId("token-why"), why);
  text.value = "";
  dialog.showModal();
  // Without a token there is nothing to see behind it.
  dialog.addEventListener("cancel", (event) => event.preventDefault());
  return new Promise((resolve) => {
    dialog.querySelector("form").onsubmit = (event) => {
      event.preventDefault();
      dialog.close();
      resolve(text.value.trim());
    };
  });
}

/** What the server says of itself: most of it only to those who have given the token it wants. */
async function aboutServer() {
  const told = await json("health").catch(() => null);
  if (!told?.token_needed || told.limits) return told;
  await views.ready;
  return json("health").catch(() => null);
}

/** Whether a server runs scripts, by what it says of itself; null where it does not say. */
function mayRun(told) {
  return typeof told?.allow_run === "boolean" ? told.allow_run : null;
}

/** Who speaks to the machine, or hits keys unawares, can do without those that work alone. */
function keepKeys() {
  const box = byId("single-keys");
  box.checked = localStorage.getItem(KEYS) !== "off";
  box.addEventListener("change", () => localStorage.setItem(KEYS, box.checked ? "on" : "off"));
}

askWith(askForToken);
setTheme(localStorage.getItem(THEME));
keepKeys();
byId("theme").addEventListener("click", toggleTheme);
byId("help").addEventListener("click", () => shortcuts.showModal());
byId("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
addEventListener("hashchange", route);
addEventListener("keydown", onKey);
health = aboutServer();
allowed = health.then(mayRun);
route();
