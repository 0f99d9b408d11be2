// Dark or light colours: the system's until the user chooses.

const THEME = "streamhouse.theme";

/** Applies the stored choice. */
export function applyStoredTheme() {
  const name = localStorage.getItem(THEME);
  if (name) document.documentElement.dataset.theme = name;
}

export function toggleTheme() {
  const { dataset } = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const now = dataset.theme ?? (dark ? "dark" : "light");
  dataset.theme = now === "dark" ? "light" : "dark";
  localStorage.setItem(THEME, dataset.theme);
}
