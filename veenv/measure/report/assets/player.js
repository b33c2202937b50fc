const RAMP = ["#440154", "#3b528b", "#21918c", "#5ec962", "#fde725"].map((c) => [1, 3, 5].map((i) => parseInt(c.slice(i, i + 2), 16)));
const still = matchMedia("(prefers-reduced-motion: reduce)");
const READABLE = 6.5; // radius of a circle that holds three letters
const player = { order: DATA.orders[0], step: 0, present: new Map(), timer: null, place: new Map(), paths: new Map(), dots: new Map(), signs: new Map() };
const NAMES = new Map((DATA.graph?.nodes ?? []).map((n) => [n.vertex, n.name]));
const keyOf = ([u, v]) => `${u} ${v}`;

function colour(share) {
  const place = share * (RAMP.length - 1);
  const k = Math.min(Math.floor(place), RAMP.length - 2);
  const mixed = RAMP[k].map((a, i) => Math.round(a + (place - k) * (RAMP[k + 1][i] - a)));
  return `rgb(${mixed.join(" ")})`;
}

/** Depth from left to right, or from top to bottom where the page is narrow. */
function layOut() {
  const board = byId("board");
  const nodes = DATA.graph.nodes;
  const depth = Math.max(1, ...nodes.map((n) => n.x));
  const columns = new Map();
  for (const n of nodes) columns.set(n.x, (columns.get(n.x) ?? 0) + 1);
  const tallest = Math.max(...columns.values());
  const width = Math.max(260, board.clientWidth);
  const upright = width < 640;
  const along = upright ? Math.max(320, 22 * depth) : width;
  const across = upright ? width : Math.min(620, Math.max(220, 34 * (tallest + 1)));
  const gap = Math.min((along - 30) / depth, across / (tallest + 1));
  const radius = Math.max(2.5, Math.min(12, 0.36 * gap));
  player.place = new Map(nodes.map((n) => {
    const a = 15 + (n.x / depth) * (along - 30);
    const b = n.y * across;
    return [n.id, upright ? [b, a] : [a, b]];
  }));
  player.upright = upright;
  const height = upright ? along : across;
  const svg = make("svg", { viewBox: `0 0 ${width} ${height}`, height });
  player.edges = make("g");
  const dots = make("g");
  svg.append(player.edges, dots);
  player.paths.clear();
  player.dots.clear();
  player.signs.clear();
  for (const node of nodes) {
    const [cx, cy] = player.place.get(node.id);
    const dot = make("circle", { cx, cy, r: radius, class: node.kind });
    dot.append(make("title"));
    dots.append(dot);
    player.dots.set(node.id, dot);
    if (radius >= READABLE) {
      const sign = make("text", { x: cx, y: cy, "font-size": 0.95 * radius, class: node.kind }, node.sign);
      dots.append(sign);
      player.signs.set(node.id, sign);
    }
    if (node.kind === "move") dot.addEventListener("click", () => show(player.order.ids.indexOf(node.vertex) + 1));
  }
  board.replaceChildren(svg);
}

function pathOf(edge) {
  const key = keyOf(edge);
  if (!player.paths.has(key)) {
    const [[x0, y0], [x1, y1]] = edge.map((n) => player.place.get(n));
    const bend = ((edge[0] + edge[1]) % 2 ? 1 : -1) * Math.min(24, 0.12 * Math.hypot(x1 - x0, y1 - y0));
    const [mx, my] = player.upright ? [(x0 + x1) / 2 + bend, (y0 + y1) / 2] : [(x0 + x1) / 2, (y0 + y1) / 2 + bend];
    const path = make("path", { d: `M${x0.toFixed(1)} ${y0.toFixed(1)}Q${mx.toFixed(1)} ${my.toFixed(1)} ${x1.toFixed(1)} ${y1.toFixed(1)}` });
    player.paths.set(key, path);
    player.edges.append(path);
  }
  return player.paths.get(key);
}

/** The edges after so many eliminations, from those at another time. */
function edgesAt(step) {
  const order = player.order;
  while (player.at < step) {
    for (const e of order.removed[player.at]) player.present.delete(keyOf(e));
    for (const e of order.added[player.at]) player.present.set(keyOf(e), e);
    player.at += 1;
  }
  while (player.at > step) {
    player.at -= 1;
    for (const e of order.added[player.at]) player.present.delete(keyOf(e));
    for (const e of order.removed[player.at]) player.present.set(keyOf(e), e);
  }
}

function paint() {
  const { order, step } = player;
  edgesAt(step);
  for (const path of player.paths.values()) path.style.display = "none";
  const added = new Set(step ? order.added[step - 1].map(keyOf) : []);
  for (const [key, edge] of player.present) {
    const path = pathOf(edge);
    path.style.display = "";
    path.setAttribute("class", added.has(key) ? "new" : "");
  }
  for (const edge of step ? order.removed[step - 1] : []) {
    const path = pathOf(edge);
    path.style.display = "";
    path.setAttribute("class", "gone");
  }
  for (const node of DATA.graph.nodes) {
    const dot = player.dots.get(node.id);
    const time = order.ids.indexOf(node.vertex);
    let kind = node.kind;
    if (kind === "move") {
      if (time === step - 1) kind = "move now";
      else if (time < step) kind = "move done";
      dot.style.fill = kind === "move done" ? "" : colour(time / Math.max(1, order.ids.length - 1));
    }
    dot.setAttribute("class", kind);
    player.signs.get(node.id)?.setAttribute("class", `${kind}${time > 0.6 * order.ids.length ? " bright" : ""}`);
    const when = node.kind === "move" ? `, elimination ${time + 1} for ${order.costs[time]}` : "";
    dot.firstChild.textContent = `${node.vertex ? `vertex ${node.vertex}: ` : ""}${node.name}${when}`;
  }
}

function tell() {
  const { order, step } = player;
  const count = order.ids.length;
  const name = step && NAMES.has(order.ids[step - 1]) ? ` (${NAMES.get(order.ids[step - 1])})` : "";
  const vertex = step ? `Vertex ${order.ids[step - 1]}${name} for ${FORMAT.format(order.costs[step - 1])}. ` : "";
  const edges = DATA.graph ? ` ${FORMAT.format(player.present.size)} edges are left.` : "";
  const price = document.createElement("b");
  price.id = "paid";
  price.textContent = FORMAT.format(order.sums[step]);
  byId("now").replaceChildren(
    `${step} of ${count} vertices eliminated. ${vertex}Price so far: `, price,
    ` of ${FORMAT.format(order.sums[count])} ${UNIT}.${edges}`,
  );
  const { cursor, sx, area } = priceChart;
  cursor.setAttribute("d", `M${sx(step)} ${area.top}V${area.bottom}`);
  byId("board").setAttribute("aria-label", `The graph after ${step} of ${count} eliminations, ${player.present.size} edges`);
}

function show(step) {
  player.step = Math.max(0, Math.min(player.order.ids.length, step));
  const slider = byId("step");
  slider.value = player.step;
  slider.setAttribute("aria-valuetext", `${player.step} eliminations, price ${player.order.sums[player.step]}`);
  if (DATA.graph) paint();
  tell();
}

function choose(name) {
  stop();
  player.order = DATA.orders.find((o) => o.name === name);
  byId("step").max = player.order.ids.length;
  player.at = 0;
  player.present = new Map((DATA.graph?.edges ?? []).map((e) => [keyOf(e), e]));
  show(Math.min(player.step, player.order.ids.length));
}

function stop() {
  clearInterval(player.timer);
  player.timer = null;
  byId("play").textContent = "Play";
  byId("play").setAttribute("aria-pressed", "false");
  byId("now").setAttribute("aria-live", "polite");
}

function toggle() {
  if (player.timer !== null) return stop();
  if (player.step >= player.order.ids.length) show(0);
  byId("play").textContent = "Pause";
  byId("play").setAttribute("aria-pressed", "true");
  byId("now").setAttribute("aria-live", "off");
  const pause = still.matches ? 900 : Math.max(60, Math.min(500, 15000 / player.order.ids.length));
  player.timer = setInterval(() => {
    show(player.step + 1);
    if (player.step >= player.order.ids.length) stop();
  }, pause);
}

function move(step) {
  stop();
  show(step);
}

function redraw() {
  drawPrice();
  drawBars();
  drawCurve();
  if (DATA.graph) layOut();
  else byId("board").textContent = "The graph is too large to be drawn.";
  show(player.step);
}

for (const order of DATA.orders) byId("which").append(new Option(`${order.name} (${FORMAT.format(order.sums.at(-1))})`, order.name));
byId("which").addEventListener("change", (event) => choose(event.target.value));
byId("step").addEventListener("input", (event) => move(Number(event.target.value)));
byId("first").addEventListener("click", () => move(0));
byId("back").addEventListener("click", () => move(player.step - 1));
byId("next").addEventListener("click", () => move(player.step + 1));
byId("last").addEventListener("click", () => move(player.order.ids.length));
byId("play").addEventListener("click", toggle);
byId("game").addEventListener("keydown", (event) => {
  if (event.key === " " && event.target.tagName === "INPUT") {
    event.preventDefault();
    toggle();
  } else if (event.target.tagName === "INPUT" && event.key.startsWith("Page")) {
    event.preventDefault();
    move(player.step + (event.key === "PageUp" ? 10 : -10));
  }
});
for (const button of document.querySelectorAll("[data-copy]")) {
  button.addEventListener("click", async () => {
    const source = byId(button.dataset.copy);
    try {
      await navigator.clipboard.writeText(source.textContent);
      byId("copied").textContent = "Copied.";
    } catch {
      getSelection().selectAllChildren(source);
      byId("copied").textContent = "Selected; copy it with the keyboard.";
    }
  });
}
drawPrice();
if (DATA.graph) layOut();
choose(DATA.orders[0].name);
redraw();
let width = innerWidth;
addEventListener("resize", () => {
  if (innerWidth !== width) redraw();
  width = innerWidth;
});
