"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const $ = (id) => document.getElementById(id);
  const SIDES = ["source", "target"];

  // The button beside a command; the clipboard is not there for every page that is opened from disk.
  for (const box of document.querySelectorAll(".command")) {
    const button = box.querySelector("button");
    button.hidden = false;
    button.addEventListener("click", async () => {
      const code = box.querySelector("code");
      try { await navigator.clipboard.writeText(code.textContent); button.textContent = "Copied"; }
      catch { getSelection().selectAllChildren(code); button.textContent = "Selected"; }
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
  }

  if (!$("controls") || !data.maps.some(Boolean)) return;
  $("controls").hidden = false;

  // ---- what there is to draw
  const maps = data.maps.map((map, run) => map && { ...map, run, label: data.runs[run].label, samples: data.groups[map.group] }).filter(Boolean);
  const classes = [...new Set(maps.flatMap((map) => map.samples.classes))];
  const number = new Map(classes.map((name, index) => [name, index]));
  const labelled = maps.some((map) => map.samples.target.labels);
  const hasTsne = maps.some((map) => map.tsne);
  const PALETTE = ["#3f90da", "#ffa90e", "#cf3118", "#94a4a2", "#9a42cf", "#a96b59", "#e76300", "#b9ac70", "#7b8091", "#54b8bc"];
  const VIRIDIS = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];
  const CHIPS = 24;
  const classColour = (index) => classes.length <= PALETTE.length ? PALETTE[index]
    : `hsl(${(index * 137.508) % 360} ${58 + 14 * (index % 3)}% ${42 + 9 * (index % 4)}%)`;

  function points(map, plane) {
    const found = [];
    SIDES.forEach((side, s) => {
      const place = (map[plane] || map.pca)[s], labels = map.samples[side].labels;
      for (let i = 0; i < place[0].length; i++) {
        const label = labels ? labels[i] : null, prediction = map.prediction[s][i];
        const known = label === null ? prediction : label;
        found.push({ side, s, i, x: place[0][i] / 4095, y: 1 - place[1][i] / 4095, label, prediction,
          confidence: map.confidence[s][i] / 1000, class: number.get(map.samples.classes[known]), taken: number.get(map.samples.classes[prediction]) });
      }
    });
    return found;
  }

  // ---- what is chosen; the address says it too, so that a view can be linked to
  const fresh = () => ({ domains: new Set(SIDES), classes: null, outcome: "all", colour: "class", plane: hasTsne ? "tsne" : "pca" });
  let state = fresh();
  const view = { k: 1, x: 0.5, y: 0.5 };
  let current = null; // {map, point}

  function readAddress() {
    if (!location.hash.startsWith("#map?")) return;
    const asked = new URLSearchParams(location.hash.slice(5));
    if (asked.has("domain")) state.domains = new Set(asked.get("domain").split(",").filter((name) => SIDES.includes(name)));
    if (asked.has("class")) state.classes = new Set(asked.getAll("class").filter((name) => number.has(name)).map((name) => number.get(name)));
    for (const name of ["outcome", "colour", "plane"]) {
      const field = document.querySelector(`[name=${name}]`);
      if (asked.has(name) && [...field.options].some((option) => option.value === asked.get(name))) state[name] = asked.get(name);
    }
    $("map").scrollIntoView();
  }

  function writeAddress() {
    const asked = new URLSearchParams(), plain = fresh();
    if (state.domains.size < 2) asked.set("domain", [...state.domains].join(","));
    if (state.classes && state.classes.size <= 12) for (const index of state.classes) asked.append("class", classes[index]);
    for (const name of ["outcome", "colour", "plane"]) if (state[name] !== plain[name]) asked.set(name, state[name]);
    const text = asked.toString();
    try { history.replaceState(null, "", text ? `#map?${text}` : location.hash.startsWith("#map") ? "#map" : location.hash || "#"); } catch { /* not allowed for this address */ }
  }

  // ---- controls
  const element = (tag, attributes = {}, ...children) => {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) name in made ? made[name] = value : made.setAttribute(name, value);
    made.append(...children);
    return made;
  };

  function buildControls() {
    const planes = document.querySelector("[name=plane]");
    const size = (plane) => { const map = maps.find((one) => one[plane]); return map[plane][0][0].length + map[plane][1][0].length; };
    if (hasTsne) planes.append(new Option(`t-SNE (${size("tsne").toLocaleString("en")} samples)`, "tsne"));
    planes.append(new Option(`principal components (${size("pca").toLocaleString("en")})`, "pca"));
    const filter = $("class-filter");
    if (classes.length <= CHIPS) {
      classes.forEach((name, index) => {
        const swatch = element("span", { "aria-hidden": "true" });
        swatch.style.setProperty("--swatch", classColour(index));
        filter.append(element("label", { className: "chip" }, element("input", { type: "checkbox", name: "class", value: String(index), checked: true }), swatch, name));
      });
      const set = (all) => () => { state.classes = all ? null : new Set(); update(); };
      filter.append(element("button", { type: "button", id: "all-classes", onclick: set(true) }, "All"), element("button", { type: "button", id: "no-classes", onclick: set(false) }, "None"));
    } else {
      const select = element("select", { name: "one-class", ariaLabel: "Class" }, new Option(`all ${classes.length} classes`, ""));
      classes.forEach((name, index) => select.append(new Option(name, String(index))));
      filter.append(select);
    }
    if (!labelled) {
      document.querySelector("[name=outcome]").closest("label").hidden = true;
      document.querySelector("[name=colour] [value=outcome]").remove();
    }
    $("controls").addEventListener("change", (event) => {
      const { name, value, checked } = event.target;
      if (name === "domain") checked ? state.domains.add(value) : state.domains.delete(value);
      else if (name === "class") {
        state.classes ??= new Set(classes.keys());
        checked ? state.classes.add(Number(value)) : state.classes.delete(Number(value));
        if (state.classes.size === classes.length) state.classes = null;
      } else if (name === "one-class") state.classes = value === "" ? null : new Set([Number(value)]);
      else state[name] = value;
      update();
    });
    $("closer").addEventListener("click", () => zoom(1.6));
    $("wider").addEventListener("click", () => zoom(1 / 1.6));
    $("reset").addEventListener("click", () => { state = fresh(); zoom(0); update(); });
  }

  function showState() {
    for (const box of document.querySelectorAll("[name=domain]")) box.checked = state.domains.has(box.value);
    for (const box of document.querySelectorAll("[name=class]")) box.checked = !state.classes || state.classes.has(Number(box.value));
    const one = document.querySelector("[name=one-class]");
    if (one) one.value = state.classes && state.classes.size === 1 ? String([...state.classes][0]) : "";
    for (const name of ["outcome", "colour", "plane"]) document.querySelector(`[name=${name}]`).value = state[name];
  }

  const wanted = (point) => state.domains.has(point.side) && (!state.classes || state.classes.has(point.class))
    && (state.outcome === "all" || (point.label !== null && (point.label === point.prediction) === (state.outcome === "right")));

  // ---- drawing
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  function colourOf(point, ink) {
    if (state.colour === "class") return classColour(point.class);
    if (state.colour === "prediction") return classColour(point.taken);
    if (state.colour === "domain") return point.side === "source" ? ink.source : ink.target;
    if (state.colour === "outcome") return point.label === null ? ink.source : point.label === point.prediction ? ink.right : ink.wrong;
    const at = Math.min(Math.max(point.confidence, 0), 0.9999) * 4, low = VIRIDIS[Math.floor(at)], high = VIRIDIS[Math.floor(at) + 1], t = at % 1;
    return `rgb(${low.map((value, c) => Math.round(value + t * (high[c] - value))).join(" ")})`;
  }

  const MARGIN = 0.035;
  const toScreen = (map, point) => {
    const size = map.size, inner = size * (1 - 2 * MARGIN);
    return [size / 2 + (point.x - view.x) * view.k * inner, size / 2 + (point.y - view.y) * view.k * inner];
  };

  function draw(map) {
    const ratio = devicePixelRatio || 1, size = map.canvas.clientWidth;
    if (!size) return;
    map.size = size;
    if (map.canvas.width !== Math.round(size * ratio)) map.canvas.width = map.canvas.height = Math.round(size * ratio);
    const pen = map.canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, size, size);
    const ink = { source: css("--faint"), target: css("--r1"), right: css("--r1"), wrong: css("--r2"), ink: css("--ink"), paper: css("--raised") };
    const n = map.visible.length, radius = (n > 3000 ? 1.8 : n > 900 ? 2.4 : 3.2) * Math.min(Math.sqrt(view.k), 2);
    pen.globalAlpha = n > 3000 ? 0.7 : 0.85;
    pen.lineWidth = 1.1;
    for (const point of map.visible) {
      const [x, y] = toScreen(map, point);
      if (x < -9 || y < -9 || x > size + 9 || y > size + 9) continue;
      const colour = colourOf(point, ink);
      pen.beginPath();
      if (point.side === "source") { pen.strokeStyle = colour; pen.arc(x, y, radius + 0.4, 0, 7); pen.stroke(); }
      else { pen.fillStyle = colour; pen.arc(x, y, radius, 0, 7); pen.fill(); }
    }
    pen.globalAlpha = 1;
    const mark = current && map.group === current.map.group && map.all.find((point) => point.s === current.point.s && point.i === current.point.i);
    if (mark) {
      const [x, y] = toScreen(map, mark);
      pen.lineWidth = 4.5; pen.strokeStyle = ink.paper; pen.beginPath(); pen.arc(x, y, radius + 5, 0, 7); pen.stroke();
      pen.lineWidth = 2; pen.strokeStyle = ink.ink; pen.beginPath(); pen.arc(x, y, radius + 5, 0, 7); pen.stroke();
    }
  }

  const redraw = () => maps.forEach(draw);

  function update() {
    for (const map of maps) {
      if (map.plane !== state.plane) { map.all = points(map, state.plane); map.plane = state.plane; }
      map.visible = map.all.filter(wanted);
      map.counter.textContent = `${map.visible.length.toLocaleString("en")} of ${map.all.length.toLocaleString("en")} samples`;
    }
    $("shown").textContent = maps.map((map) => `${maps.length > 1 ? map.label + ": " : ""}${map.counter.textContent} shown`).join("; ");
    if (current && !current.map.visible.some((point) => point.s === current.point.s && point.i === current.point.i)) choose(null);
    showState();
    writeAddress();
    redraw();
  }

  // ---- one sample
  const sheets = new Map();
  function thumbnail(map, point) {
    const samples = map.samples[point.side];
    if (!samples.sheet) return null;
    const key = map.group + point.side, shown = 88;
    if (!sheets.has(key)) {
      const made = element("div", { className: "thumb" });
      made.style.backgroundImage = `url(${samples.sheet})`;
      made.style.backgroundSize = `${samples.columns * shown}px auto`;
      made.style.imageRendering = samples.side <= 16 ? "pixelated" : "auto";
      sheets.set(key, made);
    }
    const made = sheets.get(key);
    made.style.backgroundPosition = `${-(point.i % samples.columns) * shown}px ${-Math.floor(point.i / samples.columns) * shown}px`;
    return made;
  }

  function choose(map, point, at, byKey = false) {
    current = map ? { map, point, byKey } : null;
    const panel = $("sample");
    panel.hidden = !current;
    if (current) {
      const samples = map.samples[point.side], name = samples.ids ? samples.ids[point.i] : `sample ${samples.index[point.i]}`;
      const text = element("div");
      text.append(element("p", {}, "class ", element("b", {}, point.label === null ? "not known" : map.samples.classes[point.label])));
      for (const other of maps) {
        if (other.group !== map.group) continue;
        const taken = other.prediction[point.s][point.i], sure = other.confidence[point.s][point.i] / 10;
        const right = point.label === null ? "" : taken === point.label ? "good" : "bad";
        const verdict = { good: " ✓", bad: " ✗", "": "" }[right];
        text.append(element("p", {}, maps.length > 1 ? `${other.label}: ` : "prediction ",
          element("b", { className: right }, map.samples.classes[taken] + verdict), ` ${sure.toFixed(sure > 99.9 || sure < 10 ? 1 : 0)} %`));
      }
      text.append(element("p", { className: "where" }, `${samples.name} (${point.side}), ${name}`));
      panel.replaceChildren(...[thumbnail(map, point), text].filter(Boolean));
      const [x, y] = at, width = panel.offsetWidth, height = panel.offsetHeight;
      panel.style.left = `${x + 18 + width > innerWidth ? Math.max(x - 18 - width, 4) : x + 18}px`;
      panel.style.top = `${Math.min(Math.max(y - height / 2, 4), innerHeight - height - 4)}px`;
    }
    redraw();
  }

  function nearest(map, x, y, reach) {
    let best = null, least = reach * reach;
    for (const point of map.visible) {
      const [px, py] = toScreen(map, point), distance = (px - x) ** 2 + (py - y) ** 2;
      if (distance < least) { least = distance; best = point; }
    }
    return best;
  }

  const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
  function towards(map, [dx, dy]) {
    const from = current && current.map === map ? toScreen(map, current.point) : [map.size / 2, map.size / 2];
    if (!current || current.map !== map) return nearest(map, ...from, Infinity);
    let best = null, least = Infinity;
    for (const point of map.visible) {
      const [x, y] = toScreen(map, point), ax = x - from[0], ay = y - from[1], along = ax * dx + ay * dy, aside = Math.abs(ax * dy - ay * dx);
      if (along <= 0.01 || aside > 1.5 * along) continue;
      const cost = along + 2 * aside;
      if (cost < least) { least = cost; best = point; }
    }
    return best;
  }

  function chooseOnScreen(map, point) {
    if (!point) return;
    const box = map.canvas.getBoundingClientRect(), [x, y] = toScreen(map, point);
    choose(map, point, [box.left + x, box.top + y], true);
  }

  function zoom(factor) {
    if (factor === 0) Object.assign(view, { k: 1, x: 0.5, y: 0.5 });
    else {
      if (current && factor > 1) { view.x = current.point.x; view.y = current.point.y; }
      view.k = Math.min(Math.max(view.k * factor, 1), 40);
      if (view.k === 1) view.x = view.y = 0.5;
    }
    for (const map of maps) map.canvas.style.touchAction = view.k > 1 ? "none" : "pan-y";
    redraw();
  }

  function listen(map) {
    const { canvas } = map;
    let drag = null;
    const local = (event) => { const box = canvas.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
    canvas.addEventListener("pointermove", (event) => {
      if (drag) {
        const scale = view.k * map.size * (1 - 2 * MARGIN);
        view.x = drag.x - (event.clientX - drag.fromX) / scale; view.y = drag.y - (event.clientY - drag.fromY) / scale;
        redraw();
        return;
      }
      const point = nearest(map, ...local(event), 14);
      if (point) choose(map, point, [event.clientX, event.clientY]); else if (current) choose(null);
    });
    canvas.addEventListener("pointerdown", (event) => {
      const point = nearest(map, ...local(event), event.pointerType === "touch" ? 26 : 14);
      if (point) choose(map, point, [event.clientX, event.clientY]);
      else if (view.k > 1) { drag = { x: view.x, y: view.y, fromX: event.clientX, fromY: event.clientY }; canvas.setPointerCapture(event.pointerId); }
      else choose(null);
    });
    for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, () => { drag = null; });
    canvas.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse" && !drag && current) choose(null); });
    canvas.addEventListener("blur", () => { if (current) choose(null); });
    canvas.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (ARROWS[event.key]) chooseOnScreen(map, towards(map, ARROWS[event.key]));
      else if (event.key === "+" || event.key === "=") zoom(1.6);
      else if (event.key === "-") zoom(1 / 1.6);
      else if (event.key === "0") zoom(0);
      else if (event.key === "Escape") choose(null);
      else return;
      event.preventDefault();
    });
  }

  // ---- begin
  for (const map of maps) {
    map.counter = element("span");
    map.canvas = element("canvas", { tabIndex: 0, role: "application", "aria-label": `Feature map of ${map.label}`, "aria-describedby": "map-help" });
    map.canvas.style.touchAction = "pan-y";
    $("maps").append(element("figure", { className: "map" }, element("figcaption", {}, element("span", {}, map.label), map.counter), map.canvas));
    listen(map);
    new ResizeObserver(() => draw(map)).observe(map.canvas);
  }
  buildControls();
  readAddress();
  update();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  addEventListener("hashchange", () => { if (location.hash.startsWith("#map?")) { state = fresh(); readAddress(); update(); } });
  // A sample that was chosen by key moves along with its map; one under the pointer is no longer there.
  addEventListener("scroll", () => { if (current) current.byKey ? chooseOnScreen(current.map, current.point) : choose(null); }, { passive: true });
})();
