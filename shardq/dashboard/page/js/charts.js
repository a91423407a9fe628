// Charts as plain SVG: lines on a time axis, a bar of reasons, a spark. Each has a text twin, so nothing is told by a
// picture alone. A value that nobody knows (null) is a gap.
import { h, s, clock, n, REASONS, MEANS } from "./dom.js";

const isKnown = (v) => v !== null && v !== undefined;
const nice = (top) => { const p = 10 ** Math.floor(Math.log10(top || 1)); return [1, 2, 5, 10].find((m) => m * p >= top) * p; };
const most = (lines, least) => lines.reduce((a, l) => l.values.reduce((x, v) => Math.max(x, v ?? 0), a), least);

/** The path through the points that are known, with a gap where they are not. */
function path(values, x, y) {
  let d = "", pen = "M";
  values.forEach((v, i) => {
    if (!isKnown(v)) { pen = "M"; return; }
    const alone = pen === "M" && !isKnown(values[i + 1]); // a point with gaps around it is a short stroke
    d += `${pen}${x(i).toFixed(1)} ${y(v).toFixed(1)}${alone ? "h1" : ""}`;
    pen = "L";
  });
  return d;
}

/** The same, down to the ground: each stretch between gaps by itself. */
function area(values, x, y, ground) {
  let d = "", from = -1;
  for (let i = 0; i <= values.length; i++) {
    if (isKnown(values[i])) { if (from < 0) from = i; continue; }
    if (from >= 0 && i - from > 1) d += path(values.slice(from, i), (k) => x(k + from), y) + `L${x(i - 1).toFixed(1)} ${ground}L${x(from).toFixed(1)} ${ground}Z`;
    from = -1;
  }
  return d;
}

/** lines: [{name, css, values, area}]; options: start, step, marks [{at, text}], format, height, width, log, least, label. */
export function chart(lines, o) {
  if (lines.every((l) => l.values.filter(isKnown).length < 2)) return h("p", { class: "soft" }, "Too new for a chart: it needs two minutes.");
  const W = innerWidth < 720 ? 330 : innerWidth < 1080 ? 820 : o.width ?? 640, H = o.height ?? 150, L = 46, R = 6, T = 8, B = 20, count = Math.max(2, lines[0].values.length);
  const top = most(lines, o.least ?? 1e-9), low = o.log ? 0.05 : 0, high = o.log ? Math.max(1, 10 ** Math.ceil(Math.log10(top))) : nice(top);
  const x = (i) => L + (i / (count - 1)) * (W - L - R);
  const y = (v) => { const k = o.log ? Math.log(Math.max(v, low) / low) / Math.log(high / low) : v / high; return H - B - k * (H - T - B); };
  const ticks = o.log ? [0.1, 1, 10, 100, 1000, 10000, 100000].filter((v) => v <= high) : [0, high / 2, high];
  const parts = [];
  for (const v of ticks) parts.push(s("line", { class: "rule", x1: L, x2: W - R, y1: y(v), y2: y(v) }), s("text", { x: L - 8, y: y(v) + 4, "text-anchor": "end" }, o.format(v)));
  const minutes = (count * o.step) / 60, every = minutes > 120 ? 3600 : minutes > 40 || W < 400 ? 600 : 300;
  for (let i = 0; i < count; i++) { const t = o.start + i * o.step; if (t % every < o.step && x(i) > L + 12 && x(i) < W - 22) parts.push(s("text", { x: x(i), y: H - 5, "text-anchor": "middle" }, clock(t))); }
  for (const m of o.marks ?? []) { const isLate = x(m.at) > 0.7 * W; parts.push(s("line", { class: "mark", x1: x(m.at), x2: x(m.at), y1: T, y2: H - B }), s("text", { x: x(m.at) + (isLate ? -5 : 5), y: T + 9, "text-anchor": isLate ? "end" : "start" }, m.text)); }
  for (const l of lines) {
    if (l.area) parts.push(s("path", { class: "area " + l.css, d: area(l.values, x, y, H - B) }));
    parts.push(s("path", { class: l.css, d: path(l.values, x, y) }));
  }
  parts.push(s("line", { class: "cross", y1: T, y2: H - B, x1: -9, x2: -9, visibility: "hidden" }));
  const say = (l, i) => isKnown(l.values[i]) ? o.format(l.values[i]) : "–";
  // While a person reads a point, the figure stays as it is (data-hold, see patch.js).
  const show = (figure, i, isRead) => {
    const cross = figure.querySelector(".cross");
    if (isRead) { figure.setAttribute("data-hold", ""); cross.setAttribute("x1", x(i)); cross.setAttribute("x2", x(i)); }
    else figure.removeAttribute("data-hold");
    cross.setAttribute("visibility", isRead ? "visible" : "hidden");
    figure.querySelectorAll(".legend b").forEach((reading, k) => { reading.textContent = say(lines[k], i); });
    figure.querySelector(".legend .at").textContent = i === count - 1 ? "now" : clock(o.start + i * o.step, true);
  };
  const picture = s("svg", { class: "chart", viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": o.label,
    onpointermove: (e) => { const box = e.currentTarget.getBoundingClientRect(), i = Math.round(((e.clientX - box.left) / box.width * W - L) / (W - L - R) * (count - 1)); show(e.currentTarget.closest("figure"), Math.max(0, Math.min(count - 1, i)), true); },
    onpointerleave: (e) => show(e.currentTarget.closest("figure"), count - 1, false) }, parts);
  const rows = [0, 0.25, 0.5, 0.75, 1].map((k) => Math.round(k * (count - 1)));
  return h("figure", null,
    h("figcaption", { class: "legend" }, lines.map((l) => h("span", { class: "key " + l.css }, l.name, " ", h("b", null, say(l, l.values.length - 1)))), h("span", { class: "at" }, "now")), picture,
    h("details", { class: "twin" }, h("summary", null, "as numbers"), h("table", null, h("thead", null, h("tr", null, h("th", { scope: "col" }, "time"), lines.map((l) => h("th", { scope: "col", class: "num" }, l.name)))), h("tbody", null, rows.map((i) => h("tr", null, h("td", null, clock(o.start + i * o.step)), lines.map((l) => h("td", { class: "num" }, say(l, i)))))))));
}

/** The messages of a tenant or a queue that wait, by reason ({turn: 12, limit: 3}); its width is its share of `whole`. */
export function bar(parts, whole, isBig = false) {
  let at = 0;
  const words = REASONS.filter((r) => parts[r]).map((r) => `${n(parts[r])} ${MEANS[r][0]}`).join(", ") || "nothing waits";
  return s("svg", { class: isBig ? "bar big" : "bar", viewBox: "0 0 100 8", preserveAspectRatio: "none", role: "img", "aria-label": words },
    [...REASONS, "run"].filter((r) => parts[r]).map((r) => { const w = Math.max(2, (100 * parts[r]) / (whole || 1)), x = at; at += w; return s("rect", { class: r, x, y: 0, width: w, height: 8 }); }));
}

export function spark(lines, label, W = 120, H = 26) {
  const top = most(lines, 1e-9);
  return s("svg", { class: "spark", viewBox: `0 0 ${W} ${H}`, width: W, height: H, role: "img", "aria-label": label }, lines.map((l) => s("path", { class: l.css, d: path(l.values, (i) => (i / Math.max(1, l.values.length - 1)) * W, (v) => H - 2 - (v / top) * (H - 4)) })));
}

export function columns(values, label, H = 24) {
  const top = Math.max(...values, 1);
  return s("svg", { class: "spark", viewBox: `0 0 ${values.length * 3} ${H}`, width: values.length * 3, height: H, role: "img", "aria-label": label }, values.map((v, i) => { const k = Math.max(1.5, (v / top) * H); return s("rect", { x: i * 3, y: H - k, width: 2, height: k, class: v ? null : "low" }); }));
}
export const thinned = (values, count = 60) => { const k = Math.ceil(values.length / count), out = []; for (let i = 0; i < values.length; i += k) { const known = values.slice(i, i + k).filter(isKnown); out.push(known.length ? Math.max(...known) : null); } return out; };
