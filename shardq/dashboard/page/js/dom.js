// Makes elements. Text is only ever text: nothing here parses HTML, so a hostile name is a name.
export * from "./words.js";

const NS = "http://www.w3.org/2000/svg";
/** What an element does on events: by name of the event, so that an element that stays can take over what a new one does. */
const does = new WeakMap();
const run = (e) => does.get(e.currentTarget)?.[e.type]?.(e);

function fill(node, attrs, children) {
  for (const [name, value] of Object.entries(attrs ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) on(node, name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(9).filter((c) => c !== null && c !== undefined && c !== false));
  return node;
}
function on(node, type, act) {
  if (!does.has(node)) does.set(node, {});
  if (!does.get(node)[type]) node.addEventListener(type, run);
  does.get(node)[type] = act;
}
/** Lets an element that stays do what the new one would. */
export function adopt(old, fresh) {
  const acts = does.get(fresh) ?? {};
  for (const type of Object.keys(does.get(old) ?? {})) if (!acts[type]) does.get(old)[type] = () => {};
  for (const [type, act] of Object.entries(acts)) on(old, type, act);
}
export const h = (tag, attrs, ...children) => fill(document.createElement(tag), attrs, children);
export const s = (tag, attrs, ...children) => fill(document.createElementNS(NS, tag), attrs, children);
export const b = (...words) => h("b", null, ...words);
export const tone = (name, ...words) => h("span", { class: name }, ...words);
export const link = (to, ...words) => h("a", { href: to }, ...words);
