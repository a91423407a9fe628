// Light, dark, or as the system has it. What a person chose is kept where the browser allows that.
const NAME = "shardq-theme";
const ORDER = ["system", "light", "dark"];

export const theme = () => document.documentElement.dataset.theme ?? "system";

export function setTheme(to) {
  if (to === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = to;
  keep(NAME, to === "system" ? null : to);
}

export const nextTheme = () => setTheme(ORDER[(ORDER.indexOf(theme()) + 1) % ORDER.length]);

/** What was kept under a name; null where nothing was, or the browser keeps nothing. */
export function kept(name) {
  try { return localStorage.getItem(name); } catch { return null; }
}

export function keep(name, value) {
  try {
    if (value === null) localStorage.removeItem(name);
    else localStorage.setItem(name, value);
  } catch { /* it holds until the page is closed */ }
}
