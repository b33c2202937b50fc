const DATA = JSON.parse(document.getElementById("data").textContent);
const NS = "http://www.w3.org/2000/svg";
const DASHES = ["", "6 3", "2 3", "9 3 2 3", "1 2"];
const FORMAT = new Intl.NumberFormat("en");
const byId = (id) => document.getElementById(id);

function make(kind, attributes = {}, text = null) {
  const element = document.createElementNS(NS, kind);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== null) element.textContent = text;
  return element;
}

/** Round numbers that divide a range, about `count` of them. */
function ticks(low, high, count) {
  const rough = (high - low) / Math.max(count, 1) || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((m) => m * power >= rough);
  const found = [];
  for (let t = Math.ceil(low / step) * step; t <= high + 1e-9 * step; t += step) found.push(t);
  return found;
}

function short(value) {
  const units = [[1e9, "G"], [1e6, "M"], [1e4, "k"]];
  const [size, unit] = units.find(([s]) => Math.abs(value) >= s) ?? [1, ""];
  const scale = unit === "k" ? 1e3 : size;
  return FORMAT.format(value / scale) + unit;
}

/** An SVG with axes; gives the element and the two scales. */
function frame(box, { x, y, height, label, bottom }) {
  const width = Math.max(260, box.clientWidth);
  const area = { left: 52, right: width - 12, top: 10, bottom: height - 38 };
  const svg = make("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": label });
  const sx = (v) => area.left + ((v - x[0]) / (x[1] - x[0] || 1)) * (area.right - area.left);
  const sy = (v) => area.bottom - ((v - y[0]) / (y[1] - y[0] || 1)) * (area.bottom - area.top);
  for (const t of ticks(y[0], y[1], height / 60)) {
    svg.append(make("path", { class: "axis", d: `M${area.left} ${sy(t)}H${area.right}` }));
    svg.append(make("text", { class: "tick", x: area.left - 6, y: sy(t) + 4, "text-anchor": "end" }, short(t)));
  }
  for (const t of ticks(x[0], x[1], width / 110)) {
    svg.append(make("text", { class: "tick", x: sx(t), y: area.bottom + 16, "text-anchor": "middle" }, short(t)));
  }
  svg.append(make("path", { class: "axis", d: `M${area.left} ${area.bottom}H${area.right}` }));
  svg.append(make("text", { class: "tick", x: (area.left + area.right) / 2, y: height - 4, "text-anchor": "middle" }, bottom));
  box.replaceChildren(svg);
  return { svg, sx, sy, area };
}

function lines(box, series, options) {
  const drawn = frame(box, options);
  for (const { points, k, name } of series) {
    const d = points.map(([x, y], i) => `${i ? "L" : "M"}${drawn.sx(x).toFixed(1)} ${drawn.sy(y).toFixed(1)}`).join("");
    const line = make("path", {
      d, fill: "none", stroke: `var(--c${k % 5})`, "stroke-width": k === 0 ? 2.5 : 2, "stroke-dasharray": DASHES[k % 5],
    });
    line.append(make("title", {}, name));
    drawn.svg.append(line);
  }
  box.append(legend(series));
  return drawn;
}

function legend(series) {
  const list = document.createElement("p");
  list.className = "legend";
  for (const { k, name } of series) {
    const item = document.createElement("span");
    const swatch = make("svg", { viewBox: "0 0 30 8", "aria-hidden": "true", style: "display:inline-block;width:30px;height:8px;margin-right:.4em" });
    swatch.append(make("path", { d: "M0 4H30", stroke: `var(--c${k % 5})`, "stroke-width": 3, "stroke-dasharray": DASHES[k % 5] }));
    item.append(swatch, name);
    list.append(item);
  }
  return list;
}

/** Sums of the first costs: one more than there are costs. */
function sums(costs) {
  const found = [0];
  for (const cost of costs) found.push(found.at(-1) + cost);
  return found;
}

for (const order of DATA.orders) order.sums = sums(order.costs);
const UNIT = DATA.cost === "operations" ? "operations" : "multiplications";
let priceChart = null;

function drawPrice() {
  const most = Math.max(1, ...DATA.orders.map((o) => o.sums.at(-1)));
  const series = DATA.orders.map((o, k) => ({ k, name: `${o.name}: ${FORMAT.format(o.sums.at(-1))}`, points: o.sums.map((s, i) => [i, s]) }));
  const count = DATA.orders[0].costs.length;
  priceChart = lines(byId("price"), series, {
    x: [0, count], y: [0, most], height: 300, bottom: "eliminations",
    label: `Price so far of each order: ${series.map((s) => s.name).join(", ")} ${UNIT} at the end`,
  });
  priceChart.cursor = make("path", { class: "cursor", d: "" });
  priceChart.svg.append(priceChart.cursor);
}

function drawBars() {
  const box = byId("bars");
  const width = Math.max(260, box.clientWidth);
  const most = Math.max(1, ...DATA.orders.flatMap((o) => o.costs));
  const row = 76;
  const svg = make("svg", {
    viewBox: `0 0 ${width} ${row * DATA.orders.length}`, height: row * DATA.orders.length, role: "img",
    "aria-label": `Price of each elimination, ${DATA.orders.map((o) => `${o.name}: at most ${Math.max(0, ...o.costs)}`).join(", ")}`,
  });
  DATA.orders.forEach((order, k) => {
    const base = row * (k + 1) - 10;
    const step = (width - 10) / Math.max(1, order.costs.length);
    svg.append(make("text", { x: 0, y: row * k + 12 }, `${order.name}, at most ${FORMAT.format(Math.max(0, ...order.costs))}`));
    svg.append(make("path", { class: "axis", d: `M0 ${base}H${width - 10}` }));
    const d = order.costs.map((c, i) => `M${((i + 0.5) * step).toFixed(2)} ${base}v${(-(row - 30) * c / most).toFixed(2)}`).join("");
    svg.append(make("path", { d, stroke: `var(--c${k % 5})`, "stroke-width": Math.max(0.6, 0.75 * step), fill: "none" }));
  });
  box.replaceChildren(svg);
}

function drawCurve() {
  if (!DATA.curve.length) return;
  const classical = DATA.orders.filter((o) => ["forward", "reverse", "Markowitz"].includes(o.name));
  const values = DATA.curve.flatMap((row) => row.slice(1));
  const best = Math.min(...classical.map((o) => o.sums.at(-1)));
  const near = classical.filter((o) => o.sums.at(-1) <= 2 * Math.max(best, ...values));
  const low = Math.min(best, ...values);
  const high = Math.max(...values, ...near.map((o) => o.sums.at(-1)));
  const margin = 0.05 * Math.max(high - low, 1);
  const steps = DATA.curve.map((row) => row[0]);
  const end = [Math.min(0, steps[0]), steps.at(-1)];
  const series = [
    { k: 0, name: "best so far", points: DATA.curve.map((r) => [r[0], r[3]]) },
    { k: 3, name: "mean of an update's episodes", points: DATA.curve.map((r) => [r[0], r[1]]) },
    ...near.map((o, i) => ({ k: [1, 2, 4][i], name: o.name, points: end.map((x) => [x, o.sums.at(-1)]) })),
  ];
  lines(byId("curve"), series, {
    x: end, y: [low - margin, high + margin], height: 300, bottom: "environment steps",
    label: `Cost of the whole order over environment steps; the best so far ends at ${DATA.curve.at(-1)[3]}`,
  });
}
