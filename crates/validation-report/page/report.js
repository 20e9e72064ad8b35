"use strict";
(() => {
  const report = JSON.parse(document.getElementById("data").textContent);
  const SVG = "http://www.w3.org/2000/svg";

  /** A node with attributes and children; strings become text, never markup. */
  function node(name, attributes = {}, ...children) {
    const made = document.createElement(name);
    return fill(made, attributes, children);
  }
  function shape(name, attributes = {}, ...children) {
    return fill(document.createElementNS(SVG, name), attributes, children);
  }
  function fill(made, attributes, children) {
    for (const [key, value] of Object.entries(attributes)) {
      if (value !== null && value !== undefined) made.setAttribute(key, value);
    }
    for (const child of children) {
      if (child !== null && child !== undefined) made.append(child);
    }
    return made;
  }

  const mebibytes = (bytes) => (bytes / 1048576).toFixed(1);
  const milliseconds = (seconds) => (seconds * 1000).toFixed(1);
  const count = (model, severity) => model.verdicts.concat(model.runtime).filter((line) => line.severity === severity).length;
  const STATUS_CLASS = { passed: "good", failed: "failure", broken: "failure", "not validated": "warning" };
  const badge = (text, kind) => node("span", { class: `badge ${kind}` }, text);
  const version = (model) => model.version === null ? null : Number(model.version.replace(/^v/, ""));

  /** Columns: heading, value that is sorted by (null is last), whether it is a number, what is shown. */
  const COLUMNS = [
    ["Model", (m) => m.id, false, (m) => [node("a", { href: `#model-${m.id}` }, m.id), node("small", {}, m.release_id && m.release_id !== m.id ? `${m.name} \u2192 ${m.release_id}` : m.name)]],
    ["Status", (m) => m.status, false, (m) => [badge(m.status, STATUS_CLASS[m.status] || "none")]],
    ["Findings", (m) => m.device === null ? null : count(m, "failure") * 1000 + count(m, "warning"), false, findings],
    ["Type", (m) => m.kind, false, (m) => [m.kind]],
    ["Version", version, true, (m) => m.version === null ? [] : [m.version]],
    ["Size MiB", (m) => m.size, true, (m) => m.size === null ? [] : [mebibytes(m.size)]],
    ["Parts", (m) => m.size === null ? null : m.parts, true, (m) => m.size === null ? [] : [m.parts === 0 ? "whole" : String(m.parts)]],
    ["Compile s", (m) => m.compile_seconds, true, (m) => m.compile_seconds === null ? [] : [m.compile_seconds.toFixed(1)]],
    ["Load s", (m) => m.load_seconds, true, (m) => m.load_seconds === null ? [] : [m.load_seconds.toFixed(2)]],
    ["p50 ms", (m) => m.p50, true, (m) => m.p50 === null ? [] : [milliseconds(m.p50)]],
    ["p99 ms", (m) => m.p99, true, (m) => m.p99 === null ? [] : [milliseconds(m.p99)]],
    ["Device", (m) => m.device, false, (m) => m.device === null ? [] : [`${m.device}${m.target ? `, ${m.target}` : ""}`]],
  ];
  function findings(model) {
    const [bad, mild] = [count(model, "failure"), count(model, "warning")];
    const badges = [];
    if (bad) badges.push(badge(`${bad} failed`, "failure"), " ");
    if (mild) badges.push(badge(mild === 1 ? "1 warning" : `${mild} warnings`, "warning"));
    if (!bad && !mild && model.device !== null) badges.push(badge("none", "good"));
    return badges;
  }

  const state = { column: -1, direction: 1 };
  const search = document.getElementById("search");
  const filters = { status: (m) => m.status, kind: (m) => m.kind, version: (m) => m.version };

  function choices() {
    for (const [id, of] of Object.entries(filters)) {
      const values = [...new Set(report.models.map(of).filter((value) => value !== null))].sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
      for (const value of values) document.getElementById(id).append(node("option", { value }, value));
    }
  }
  function matches(model) {
    for (const [id, of] of Object.entries(filters)) {
      const wanted = document.getElementById(id).value;
      if (wanted !== "" && of(model) !== wanted) return false;
    }
    const words = search.value.toLowerCase().split(/\s+/).filter((word) => word !== "");
    const text = [model.id, model.release_id, model.name, model.status, model.kind, model.version, model.device, model.target, model.failure,
      ...model.verdicts.concat(model.runtime).map((line) => `${line.check} ${line.text}`)].filter((part) => part !== null).join("\n").toLowerCase();
    return words.every((word) => text.includes(word));
  }
  function compare(a, b) {
    const of = COLUMNS[state.column][1];
    const [left, right] = [of(a), of(b)];
    if (left === null || right === null) return (left === null) - (right === null);
    const order = typeof left === "number" ? left - right : left.localeCompare(right, "en", { numeric: true });
    return order * state.direction;
  }
  function shown() {
    const models = report.models.filter(matches);
    return state.column < 0 ? models : models.sort(compare);
  }

  function heads() {
    const row = document.querySelector("#catalog thead tr");
    COLUMNS.forEach(([title, , isNumber], index) => {
      const button = node("button", { type: "button" }, title);
      button.addEventListener("click", () => {
        state.direction = state.column === index ? -state.direction : 1;
        state.column = index;
        draw();
      });
      row.append(node("th", { scope: "col", class: isNumber ? "number" : null }, button));
    });
  }
  function draw() {
    const models = shown();
    document.querySelectorAll("#catalog th").forEach((head, index) => {
      if (index === state.column) head.setAttribute("aria-sort", state.direction > 0 ? "ascending" : "descending");
      else head.removeAttribute("aria-sort");
    });
    const rows = models.map((model) => node("tr", { "data-id": model.id }, ...COLUMNS.map(([title, , isNumber, cell], index) =>
      node("td", { class: index === 0 ? "id" : isNumber ? "number" : null, "data-label": title }, ...cell(model)))));
    document.querySelector("#catalog tbody").replaceChildren(...rows);
    document.getElementById("count").textContent = `${models.length} of ${report.models.length} models`;
    document.getElementById("details").replaceChildren(...models.map(cached));
  }

  // The bird's-eye plot: metres ahead upwards, metres to the right rightwards. Sideways is drawn larger than ahead.
  const AHEAD = 120, ASIDE = 12, WIDTH = 220, HEIGHT = 290, LEFT = 26, TOP = 6, BOTTOM = 18;
  const px = (y) => LEFT + (WIDTH - LEFT) * (y + ASIDE) / (2 * ASIDE);
  const py = (x) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - x / AHEAD);
  const finite = (point) => point.every((value) => typeof value === "number" && Number.isFinite(value));
  function line(points, attributes) {
    const good = points.filter(finite);
    if (good.length < 2) return null;
    const d = good.map(([x, y], index) => `${index ? "L" : "M"}${px(y).toFixed(1)} ${py(x).toFixed(1)}`).join("");
    return shape("path", { d, fill: "none", "stroke-linecap": "round", "stroke-linejoin": "round", ...attributes });
  }
  const withDistances = (offsets) => offsets.map((y, index) => [report.distances[index], y]);

  let clips = 0;
  function birdsEye(scene, before, title) {
    const clip = `clip-${clips += 1}`;
    const inside = shape("g", { "clip-path": "url" + `(#${clip})` });
    const frame = { x: LEFT, y: TOP, width: WIDTH - LEFT, height: HEIGHT - TOP - BOTTOM };
    const plot = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": title },
      shape("clipPath", { id: clip }, shape("rect", frame)), shape("rect", { ...frame, fill: "var(--road)", stroke: "var(--line)" }));
    for (let x = 0; x <= AHEAD; x += 20) {
      plot.append(shape("line", { x1: LEFT, x2: WIDTH, y1: py(x), y2: py(x), stroke: "var(--line)" }),
        shape("text", { x: LEFT - 4, y: py(x) + 4, "text-anchor": "end" }, String(x)));
    }
    for (const y of [-10, -5, 0, 5, 10]) {
      plot.append(shape("text", { x: px(y), y: HEIGHT - 4, "text-anchor": "middle" }, String(y)));
    }
    scene.edges.forEach((edge) => inside.append(line(withDistances(edge), { stroke: "var(--edge)", "stroke-width": 2, class: "edge" }) || ""));
    scene.lanes.forEach((lane, index) => inside.append(line(withDistances(lane), {
      stroke: "var(--lane)", "stroke-width": 2, "stroke-opacity": Math.max(0.15, scene.lane_probs[index] ?? 1), class: "lane" }) || ""));
    if (before) inside.append(line(before.path, { stroke: "var(--before)", "stroke-width": 2, "stroke-dasharray": "5 4", class: "before" }) || "");
    inside.append(line(scene.path, { stroke: "var(--path-fill)", "stroke-width": 14, "stroke-linecap": "butt" }) || "",
      line(scene.path, { stroke: "var(--path)", "stroke-width": 2.5, class: "path" }) || "");
    for (const [x, y, probability] of scene.leads.filter(finite)) {
      const [cx, cy] = [px(y), py(x)];
      inside.append(shape("path", { d: `M${cx} ${cy - 7}l6.5 12h-13z`, fill: "var(--lead)", "fill-opacity": Math.max(0.15, probability), class: "lead" },
        shape("title", {}, `lead at ${x.toFixed(1)} m, ${(probability * 100).toFixed(0)} %`)));
    }
    plot.append(inside);
    return plot;
  }

  const KEYS = [["path", "--path"], ["lane line", "--lane"], ["road edge", "--edge"], ["lead", "--lead"]];
  function drives(model) {
    if (model.drive.length === 0) return node("p", { class: "facts" }, "No recorded drive of this artifact.");
    const longest = Math.max(...model.drive.map((camera) => camera.scenes.length));
    const slider = node("input", { type: "range", min: 0, max: Math.max(0, longest - 1), value: longest - 1, "aria-label": "Scene" });
    const word = node("span");
    const plots = node("div", { class: "plots" });
    const keys = KEYS.concat(model.previous_drive.length ? [["path before", "--before"]] : []);
    const redraw = () => {
      const made = [];
      for (const camera of model.drive) {
        const scene = camera.scenes[Math.min(Number(slider.value), camera.scenes.length - 1)];
        if (!scene) continue;
        const old = model.previous_drive.find((other) => other.camera === camera.camera);
        const before = old && old.scenes.find((other) => other.step === scene.step);
        const speed = scene.speed === null ? "" : `, ${scene.speed.toFixed(1)} m/s`;
        word.textContent = `step ${scene.step + 1}`;
        made.push(node("figure", { style: "margin: 0" }, node("h3", {}, `${camera.camera}${speed}`), birdsEye(scene, before, `Bird's-eye view, ${camera.camera}, step ${scene.step + 1}`)));
      }
      plots.replaceChildren(...made);
    };
    slider.addEventListener("input", redraw);
    redraw();
    return node("div", {}, node("div", { class: "steps" }, slider, word,
      ...keys.map(([name, color]) => node("span", { class: "key" }, node("i", { style: `background: var(${color})` }), name))), plots,
      node("p", { class: "facts" }, "Metres ahead (upwards) and to the right; sideways is drawn larger than ahead. A faint line or lead is an improbable one."));
  }

  function histogram(series) {
    const all = Object.values(series).flat().map((seconds) => seconds * 1000);
    if (all.length === 0) return null;
    const sorted = [...all].sort((a, b) => a - b);
    const [least, most] = [sorted[0], sorted[sorted.length - 1]];
    const bins = 24, width = 320, height = 120, base = height - 18;
    const step = (most - least) / bins || 1;
    const cameras = Object.entries(series).filter(([, values]) => values.length > 0);
    const counts = cameras.map(([, values]) => {
      const bin = new Array(bins).fill(0);
      values.forEach((seconds) => { bin[Math.min(bins - 1, Math.floor((seconds * 1000 - least) / step))] += 1; });
      return bin;
    });
    const highest = Math.max(...counts.flat());
    const plot = shape("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "Histogram of step times", class: "histogram" });
    const colors = ["--path", "--lead"];
    counts.forEach((bin, camera) => bin.forEach((many, index) => {
      if (many === 0) return;
      const slot = width / bins, bar = (slot - 2) / counts.length, tall = (base - 4) * many / highest;
      plot.append(shape("rect", { x: index * slot + 1 + camera * bar, y: base - tall, width: bar, height: tall, fill: `var(${colors[camera % 2]})` },
        shape("title", {}, `${cameras[camera][0]}: ${many} steps of ${(least + index * step).toFixed(1)} to ${(least + (index + 1) * step).toFixed(1)} ms`)));
    }));
    plot.append(shape("line", { x1: 0, x2: width, y1: base, y2: base, stroke: "var(--line)" }),
      shape("text", { x: 0, y: height - 4 }, `${least.toFixed(1)} ms`),
      shape("text", { x: width, y: height - 4, "text-anchor": "end" }, `${most.toFixed(1)} ms`));
    const keys = cameras.map(([name], index) => node("span", { class: "key" }, node("i", { style: `background: var(${colors[index % 2]})` }), name));
    return node("section", {}, node("h3", {}, `Step times, ${all.length} steps, the first ones included`), plot, node("div", { class: "steps" }, ...keys));
  }
  function changes(model) {
    if (model.changes.length === 0 && model.path_changes.length === 0) return null;
    const rows = model.changes.map(({ what, before, now }) => node("tr", {}, node("th", { scope: "row" }, what), node("td", {}, before), node("td", {}, now)));
    for (const { camera, mean, most } of model.path_changes) {
      rows.push(node("tr", {}, node("th", { scope: "row" }, `path, ${camera}`), node("td", { colspan: 2 }, `moved ${mean.toFixed(2)} m on average, ${most.toFixed(2)} m at most`)));
    }
    return node("section", {}, node("h3", {}, "Changed since the artifact before"), node("table", { class: "changes" }, ...rows));
  }
  function lines(title, list) {
    if (list.length === 0) return null;
    return node("section", {}, node("h3", {}, title), node("ul", {}, ...list.map(({ severity, check, text }) => node("li", {}, badge(check, severity), text))));
  }
  function reference(model) {
    if (model.reference === undefined) return null;
    const { runtime, precision, steps, slices } = model.reference;
    if (!Array.isArray(slices)) return node("section", {}, node("h3", {}, "Against the reference"), node("pre", {}, JSON.stringify(model.reference, null, 1)));
    const figure = (value) => typeof value === "number" ? value.toPrecision(3) : "";
    const rows = slices.map((slice) => node("tr", {}, node("th", { scope: "row" }, String(slice.slice)),
      ...["absolute", "relative", "correlation"].map((of) => node("td", { class: "number" }, figure(slice[of]))),
      node("td", {}, slice.passed === true ? badge("good", "good") : badge("differs", "failure"))));
    const heads = ["slice", "absolute", "relative", "correlation", ""].map((head, index) => node("th", { scope: "col", class: index ? "number" : null }, head));
    return node("section", {}, node("h3", {}, `Against the reference: ${runtime}, ${precision}, ${steps} steps`),
      node("table", { class: "changes reference" }, node("tr", {}, ...heads), ...rows));
  }
  // Drawn once each: a keystroke in the search shows and hides, and moves no slider back.
  const articles = new Map();
  function cached(model) {
    if (!articles.has(model.id)) articles.set(model.id, article(model));
    return articles.get(model.id);
  }
  function article(model) {
    const facts = [model.kind, model.version, model.size === null ? null : `${mebibytes(model.size)} MiB`, model.parts ? `${model.parts} parts` : null,
      model.peak_bytes === null ? null : `${mebibytes(model.peak_bytes)} MiB at most in memory`, model.sha256 === null ? null : `SHA-256 ${model.sha256.slice(0, 16)}\u2026`];
    const failure = model.failure === null ? [] : [{ severity: "failure", check: "failure", text: model.failure }];
    return node("article", { id: `model-${model.id}` },
      node("header", {}, node("h2", {}, `${model.name === model.id ? "" : `${model.name} \u00b7 `}${model.id}`), badge(model.status, STATUS_CLASS[model.status] || "none")),
      node("p", { class: "facts" }, facts.filter((fact) => fact !== null).join(" \u00b7 ")),
      node("div", { class: "panels" }, drives(model), node("div", { class: "side" },
        lines("Findings", failure.concat(model.verdicts)), lines("On the device's runtime", model.runtime),
        changes(model), reference(model), histogram(model.step_seconds))));
  }

  document.getElementById("about").textContent = `${report.workspace}, ${report.made}`;
  choices();
  heads();
  search.addEventListener("input", draw);
  for (const id of Object.keys(filters)) document.getElementById(id).addEventListener("change", draw);
  draw();
})();
