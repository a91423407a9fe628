// Keeps the room that each part of a screen once had, so that what stands below it stays where it is when a sentence gets
// shorter, a list loses a row, or a number a digit. The room is let go with the screen, its question, and the window's size.
const sheet = new CSSStyleSheet();
document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];

const FULL = 0.8; // of a last line, from which on a number with one more digit may need another line
const SENTENCES = ":scope.answer > *, :scope.card .reasons .soft, :scope.card .effect, :scope.card dd";
const DIGIT = 12; // px of one more digit of a figure
let kept = new Map(); // rule without its length → length, px

/** Lets all of it go. */
export function release() {
  kept = new Map();
  sheet.replaceSync("");
}

/** Notes how much room the parts of a screen have now, and leaves it to them. */
export function keep(main) {
  note(main);
  note(main); // the room of a figure may push the next one to another line, so its part is higher than before
}

function note(main) {
  const before = kept;
  kept = new Map();
  const leave = (rule, length, spare = 0) => { if (length) kept.set(rule, Math.max(before.get(rule) ?? Math.ceil(length + spare), Math.ceil(length))); };
  for (const part of main.querySelectorAll("[data-room]")) {
    const name = `#main [data-room="${CSS.escape(part.dataset.room)}"]`, { width, height } = part.getBoundingClientRect();
    leave(`${name} { min-height`, height, another(part));
    if (part.matches(".figures > *")) leave(`${name} { min-width`, width, DIGIT);
  }
  for (const table of main.querySelectorAll("table[aria-label]")) {
    const name = `#main table[aria-label="${CSS.escape(table.getAttribute("aria-label"))}"]`;
    // The first column has what the others leave.
    [...table.tHead.rows[0].cells].forEach((cell, i) => { if (i) leave(`${name} th:nth-child(${i + 1}) { width`, cell.getBoundingClientRect().width); });
    for (const row of table.tBodies[0].rows) if (row.dataset.key && row.querySelector(".sub")) leave(`${name} tr[data-key="${CSS.escape(row.dataset.key)}"] { height`, row.getBoundingClientRect().height);
  }
  sheet.replaceSync([...kept].map(([rule, length]) => `${rule}: ${length}px; }`).join("\n"));
}

/** The height of a line more of each sentence of a part whose last line is nearly full. */
function another(part) {
  let height = 0;
  for (const sentence of part.querySelectorAll(SENTENCES)) {
    const range = document.createRange(), box = sentence.getBoundingClientRect();
    range.selectNodeContents(sentence);
    const last = [...range.getClientRects()].pop();
    if (last && last.right - box.left > FULL * box.width) height += parseFloat(getComputedStyle(sentence).lineHeight);
  }
  return height;
}
