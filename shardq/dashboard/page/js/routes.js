// Which screen an address is, and the address of a screen. An address is a hash: the page works under any prefix.
const OF_ALL = ["workers", "schedules", "settings"];
const OF_QUEUE = ["tenants", "failures", "settings"];
const OF_ONE = { tenant: "tenants", message: "failures" };
const TITLES = { overview: "Overview", workers: "Workers", schedules: "Schedules", settings: "Settings", tenants: "Tenants", failures: "Failures", message: "Message" };

/** The address of a queue, and of what is in it: here("mails", "/tenants"). */
export const here = (queue, rest = "") => "#/q/" + encodeURIComponent(queue) + rest;

/** {scene, parts, query, queue, at, title}: `at` is the entry of the side, `asked` the query as text; null: no screen has this address. */
export function route(hash = location.hash) {
  const [path, query = ""] = split(hash.replace(/^#\/?/, ""));
  const asked = Object.fromEntries(new URLSearchParams(query));
  let parts;
  try { parts = path.split("/").map(decodeURIComponent); } catch { return null; }
  const [kind, name, screen, ...rest] = parts;
  const found = (scene, parts, queue, at, title) => ({ scene, parts, query: asked, asked: query, queue, at, title, key: JSON.stringify([scene, parts]) });
  if (kind === "" && parts.length === 1) return found("overview", [], null, "overview", TITLES.overview);
  if (OF_ALL.includes(kind) && parts.length === 1) return found(kind, [], null, kind, TITLES[kind]);
  if (kind !== "q" || !name) return null;
  if (screen === undefined) return found("queue", [name], name, "queue", name);
  if (OF_QUEUE.includes(screen) && !rest.length) return found(screen, [name], name, screen, `${TITLES[screen]} · ${name}`);
  if (Object.hasOwn(OF_ONE, screen) && rest.length === 1) return found(screen, [name, rest[0]], name, OF_ONE[screen], screen === "tenant" ? `${rest[0]} · ${name}` : `${TITLES[screen]} · ${name}`);
  return null;
}

/** The address of the server that tells what a route shows: `live` for a stream of it, `scene/NAME` for once. */
export function address(at, live = true) {
  const query = new URLSearchParams(live ? { scene: at.scene } : {});
  for (const part of at.parts) query.append("part", part);
  for (const [name, value] of Object.entries(at.query)) if (!["scene", "part"].includes(name)) query.append(name, value);
  return live ? `live?${query}` : `scene/${at.scene}?${query}`;
}

/** The same screen, asked for otherwise: what is empty is left out. */
export function withQuery(query, hash = location.hash) {
  const [path, before = ""] = split(hash || "#/");
  const all = new URLSearchParams(before);
  for (const [name, value] of Object.entries(query)) {
    if (value === null || value === undefined || value === "") all.delete(name);
    else all.set(name, value);
  }
  return all.size ? `${path}?${all}` : path;
}

const split = (text) => { const at = text.indexOf("?"); return at < 0 ? [text] : [text.slice(0, at), text.slice(at + 1)]; };
