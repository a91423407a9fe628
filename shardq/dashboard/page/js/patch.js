// Changes what is shown into what is to be shown, and leaves alone what a person has in hand: numbers change in place;
// rows under the pointer, or with the focus, stay where they are; focus, scroll, open <details> and typed text are kept.
import { adopt } from "./dom.js";

let held = false;

/** Whether something was held in its place since it was last asked: it wants to be drawn again when it is let go. */
export function takeHeld() { const was = held; held = false; return was; }

/** Makes the children of a node what `fresh` (nodes) are. */
export function patch(parent, fresh) {
  const row = anchor(parent), before = row?.getBoundingClientRect().top;
  if (!row && parent === room.of) room.leave();
  children(parent, fresh);
  if (row?.isConnected) room.hold(parent, row, before);
}

/** What grew or shrank above a row in hand must not push it away: the page is scrolled by as much, and where it ends there,
    there is room for a while, above the page's content (`spare`, px) or below it (`isTall`). */
const room = {
  sheet: new CSSStyleSheet(), of: null, spare: 0, isTall: false,
  hold(parent, row, before) {
    let by = row.getBoundingClientRect().top - before;
    if (Math.abs(by) < 1) return;
    if (by > 0) { const back = Math.min(by, this.spare); this.spare -= back; by -= back; }
    else { const up = Math.min(-by, scrollY); this.spare += -by - up; by = -up; }
    this.isTall ||= by > 0;
    this.of = parent;
    held = true;
    this.write();
    if (by) scrollBy({ top: by, behavior: "instant" });
  },
  leave() { this.of = null; this.spare = 0; this.isTall = false; this.write(); },
  write() { this.sheet.replaceSync((this.spare ? `main::before { content: ""; display: block; height: ${this.spare}px; }` : "") + (this.isTall ? "main { min-height: 250vh; }" : "")); },
};
document.adoptedStyleSheets = [...document.adoptedStyleSheets, room.sheet];

const anchor = (parent) => {
  const hovered = [...parent.querySelectorAll("[data-key]:hover")].pop();
  const focused = document.activeElement?.closest?.("[data-key]");
  return hovered ?? (focused && parent.contains(focused) ? focused : null);
};
const keyOf = (node) => node.nodeType === 1 ? node.getAttribute("data-key") ?? (node.id || null) : null;
const inHand = (node) => node.matches(":hover") || node.contains(document.activeElement);

function children(parent, fresh) {
  const olds = [...parent.childNodes], keyed = new Map(), loose = new Map();
  for (const old of olds) {
    const key = keyOf(old);
    if (key !== null) keyed.set(old.nodeName + " " + key, old);
    else if (loose.has(old.nodeName)) loose.get(old.nodeName).push(old);
    else loose.set(old.nodeName, [old]);
  }
  const used = new Set();
  let wanted = fresh.map((node) => {
    const key = keyOf(node), name = node.nodeName + " " + key;
    const old = key === null ? loose.get(node.nodeName)?.shift() : keyed.get(name);
    if (key !== null) keyed.delete(name);
    if (!old) return node;
    used.add(old);
    change(old, node);
    return old;
  });
  if (isList(olds) && isList(wanted) && inHand(parent)) wanted = inPlace(olds, wanted, used);
  for (const old of olds) if (!wanted.includes(old)) old.remove();
  let at = parent.firstChild;
  for (const node of wanted) {
    if (node === at) at = at.nextSibling;
    else parent.insertBefore(node, at);
  }
}

const isList = (nodes) => nodes.length > 0 && nodes.every((node) => node.nodeType === 1 && node.hasAttribute("data-key"));

/** The rows in the order that they have now, those that are gone among them; new ones come last. */
function inPlace(olds, wanted, used) {
  const kept = olds.filter((old) => used.has(old));
  const isSame = kept.length === olds.length && kept.every((old, i) => wanted[i] === old);
  if (isSame) return wanted;
  held = true;
  for (const old of olds) if (!used.has(old)) old.setAttribute("data-gone", "");
  return [...olds, ...wanted.filter((node) => !used.has(node))];
}

function change(old, fresh) {
  if (old.nodeType !== 1) { if (old.data !== fresh.data) old.data = fresh.data; return; }
  if (old.hasAttribute("data-own")) return;
  if (old.hasAttribute("data-hold")) { held = true; return; }
  adopt(old, fresh);
  attributes(old, fresh);
  children(old, [...fresh.childNodes]);
}

function attributes(old, fresh) {
  const isOpen = old.nodeName === "DETAILS" || old.nodeName === "DIALOG";
  for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name) && !(isOpen && name === "open")) old.removeAttribute(name);
  for (const { name, value } of [...fresh.attributes]) {
    if (old.getAttribute(name) === value || (isOpen && name === "open")) continue;
    old.setAttribute(name, value);
    if (name === "value" && "value" in old && old !== document.activeElement) old.value = value;
  }
}
