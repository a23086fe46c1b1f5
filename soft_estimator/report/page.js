"use strict";
// Draws the moments with plotly.js. Both lie compressed in the page; nothing is fetched.
const NEUTRAL = [242, 242, 242], TEAL = [41, 143, 148], CORAL = [232, 107, 77], UNSEEN = [153, 158, 168];
const STOPS = ["440154", "482475", "414487", "355f8d", "2a788e", "21918d", "22a884", "44bf70", "7ad151", "bddf26", "fde725"]
  .map((hex) => [0, 2, 4].map((k) => parseInt(hex.slice(k, k + 2), 16)));
const state = { scene: null, moment: 0, timer: null };
const byId = (id) => document.getElementById(id);

const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
async function unpack(id) {
  const packed = bytes(byId(id).textContent.trim());
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).text();
}
const floats = (text) => (text === null ? null : new Float32Array(bytes(text).buffer));
const column = (array, k, width) => { const out = new Float32Array(array.length / width); for (let i = 0; i < out.length; i++) out[i] = array[width * i + k]; return out; };
const blend = (a, b, t) => a.map((v, k) => Math.round(v + (b[k] - v) * t));
const rgb = (c) => `rgb(${c[0]},${c[1]},${c[2]})`;

function residualColour(mm, full) {
  if (!Number.isFinite(mm)) return rgb(UNSEEN);
  const share = Math.max(-1, Math.min(1, mm / full));
  return rgb(blend(NEUTRAL, share > 0 ? CORAL : TEAL, Math.abs(share)));
}
function strainColour(strain, full) {
  const at = Math.max(0, Math.min(0.9999, strain / full)) * (STOPS.length - 1);
  return rgb(blend(STOPS[Math.floor(at)], STOPS[Math.floor(at) + 1], at % 1));
}
function decode(scene) {
  const corners = (text) => {
    const faces = new Int32Array(bytes(text).buffer);
    return [0, 1, 2].map((k) => { const out = new Int32Array(faces.length / 3); for (let i = 0; i < out.length; i++) out[i] = faces[3 * i + k]; return out; });
  };
  scene.ijk = corners(scene.faces);
  scene.toolFaces = Object.entries(scene.tools).map(([name, text]) => [name, corners(text)]);
  for (const m of scene.moments) {
    m.xyz = [0, 1, 2].map((k) => column(floats(m.vertices), k, 3));
    m.pxyz = [0, 1, 2].map((k) => column(floats(m.points), k, 3));
    m.toolPlaces = Object.fromEntries(Object.entries(m.tools).map(([name, text]) => [name, [0, 1, 2].map((k) => column(floats(text), k, 3))]));
    m.residual = floats(m.residual_mm); m.strains = floats(m.strain); m.pointResidual = floats(m.point_mm);
  }
  return scene;
}
const mm = (v) => (Number.isFinite(v) ? `${Math.abs(v).toFixed(2)} mm ${v > 0 ? "outside" : "inside"}` : "no point seen here");

function bodyTrace(scene, m, colourBy) {
  const [x, y, z] = m.xyz, [i, j, k] = scene.ijk;
  const trace = { type: "mesh3d", x, y, z, i, j, k, name: "twin", hoverinfo: "text", flatshading: false,
    lighting: { ambient: 0.66, diffuse: 0.6, specular: 0.12, roughness: 0.7, fresnel: 0.05 }, lightposition: lamp(scene) };
  if (colourBy === "residual" && m.residual) {
    trace.vertexcolor = Array.from(m.residual, (v) => residualColour(v, scene.residual_mm));
    trace.text = Array.from(m.residual, mm);
  } else if (colourBy === "strain" && m.strains) {
    trace.vertexcolor = Array.from(m.strains, (v) => strainColour(v, scene.strain));
    trace.text = Array.from(m.strains, (v) => `strain ${v.toPrecision(2)}`);
  } else { trace.color = rgb(TEAL); trace.hoverinfo = "skip"; }
  return trace;
}
function lamp(scene) {  // over the viewer's left shoulder
  const [x, y, z] = scene.from;
  return { x: 1e4 * (x + 0.7 * y), y: 1e4 * (y - 0.7 * x), z: 1e4 * (z + 1.2) };
}
function traces() {
  const scene = state.scene, m = scene.moments[state.moment], out = [];
  const on = (id) => !byId(id) || byId(id).checked;
  const ink = getComputedStyle(document.documentElement).getPropertyValue("--ink").trim();
  out.push({ ...bodyTrace(scene, m, byId("colour").value), visible: on("show-body") });
  out.push({ type: "scatter3d", mode: "markers", name: "points", x: m.pxyz[0], y: m.pxyz[1], z: m.pxyz[2],
    visible: on("show-points"), hoverinfo: m.pointResidual ? "text" : "skip",
    text: m.pointResidual ? Array.from(m.pointResidual, mm) : [], marker: { size: 1.8, color: ink, opacity: 0.85, line: { width: 0 } } });
  const p = m.plane || [];
  out.push({ type: "mesh3d", name: "plane", x: p.map((c) => c[0]), y: p.map((c) => c[1]), z: p.map((c) => c[2]),
    i: [0, 0], j: [1, 2], k: [2, 3], color: "#9aa6b8", opacity: 0.35, hoverinfo: "skip", visible: p.length > 0 && on("show-plane") });
  for (const [name, [i, j, k]] of scene.toolFaces) {
    const [x, y, z] = m.toolPlaces[name] || [[], [], []];
    out.push({ type: "mesh3d", name, x, y, z, i, j, k, color: "#9ea8b8", hoverinfo: "name", visible: x.length > 0, lightposition: lamp(scene) });
  }
  out.push(axesTrace(scene));
  return out;
}
function axesTrace(scene) {  // three edges at the box' lowest corner, each as long as it is labelled
  const span = Math.max(...[0, 1, 2].map((k) => scene.high[k] - scene.low[k])), power = 10 ** Math.floor(Math.log10(0.5 * span));
  const length = power * [5, 2, 1].find((step) => step * power <= 0.5 * span), x = [], y = [], z = [], text = [];
  for (const k of [0, 1, 2]) {
    const end = scene.low.map((v, axis) => v + (axis === k ? length : 0));
    for (const [p, label] of [[scene.low, ""], [end, `${"xyz"[k]} ${+(1000 * length).toPrecision(2)} mm`], [[null, null, null], ""]]) {
      x.push(p[0]); y.push(p[1]); z.push(p[2]); text.push(label);
    }
  }
  const ink = getComputedStyle(document.documentElement).getPropertyValue("--quiet").trim();
  return { type: "scatter3d", mode: "lines+text", name: "axes", x, y, z, text, textposition: "top center", hoverinfo: "skip",
    textfont: { size: 11, color: ink }, line: { width: 3, color: ink }, connectgaps: false };
}
// On a touch screen the page scrolls past the view until it is tapped; a touch elsewhere lets it scroll again.
function sleepWhereTouched() {
  if (!matchMedia("(pointer: coarse)").matches) return;
  const view = byId("view");
  view.classList.add("asleep");
  view.addEventListener("click", () => view.classList.remove("asleep"));
  document.addEventListener("touchstart", (event) => { if (!view.contains(event.target)) view.classList.add("asleep"); }, { passive: true });
}
function layout() {
  const s = state.scene, corners = [s.low, s.high, ...s.moments.flatMap((m) => m.plane || [])];
  const spans = [0, 1, 2].map((k) => {
    const values = corners.map((p) => p[k]), low = Math.min(...values), high = Math.max(...values);
    return [low - 0.02 * (high - low) - 1e-6, high + 0.02 * (high - low) + 1e-6];
  });
  const longest = Math.max(...spans.map(([low, high]) => high - low));
  const ratio = spans.map(([low, high]) => (high - low) / longest), axis = (k) => ({ visible: false, range: spans[k] });
  const size = Math.hypot(...[0, 1, 2].map((k) => (s.high[k] - s.low[k]) / longest)), away = 0.4 + 0.75 * size;
  const centre = [0, 1, 2].map((k) => ((s.low[k] + s.high[k] - spans[k][0] - spans[k][1]) / 2) / longest);
  const vector = (v) => ({ x: v[0], y: v[1], z: v[2] });
  return { margin: { l: 0, r: 0, t: 0, b: 0 }, paper_bgcolor: "rgba(0,0,0,0)", showlegend: false, uirevision: "kept",
    scene: { xaxis: axis(0), yaxis: axis(1), zaxis: axis(2), aspectmode: "manual", aspectratio: vector(ratio),
      bgcolor: "rgba(0,0,0,0)", dragmode: "turntable",
      camera: { center: vector(centre), eye: vector(centre.map((c, k) => c + away * s.from[k])), up: { x: 0, y: 0, z: 1 } } } };
}
async function draw() {
  const m = state.scene.moments[state.moment];
  byId("clock").textContent = `${m.time_s.toFixed(3)} s`;
  for (const name of ["residual", "strain"]) byId(`ramp-${name}`).hidden = byId("colour").value !== name;
  document.querySelectorAll("svg.plot[data-low]").forEach((svg) => {
    const d = svg.dataset, share = (m.time_s - d.low) / (d.high - d.low), at = +d.left + share * (d.right - d.left);
    const line = svg.querySelector(".now");
    line.setAttribute("x1", at); line.setAttribute("x2", at);
    line.style.visibility = share >= 0 && share <= 1 ? "visible" : "hidden";
  });
  await Plotly.react("view", traces(), layout(), { displaylogo: false, responsive: true, displayModeBar: false });
}
// The next moment follows when this one is drawn: a timer that does not wait leaves a slow machine no time for anything else.
function play() {
  if (state.timer) { clearTimeout(state.timer); state.timer = null; byId("play").textContent = "Play"; return; }
  byId("play").textContent = "Stop";
  const next = async () => {
    const now = state.timer;
    state.moment = (state.moment + 1) % state.scene.moments.length;
    byId("moment").value = state.moment;
    await draw();
    if (state.timer === now) state.timer = setTimeout(next, 450);
  };
  state.timer = setTimeout(next, 450);
}
async function start() {
  try {
    if (!window.DecompressionStream) throw new Error("this browser is too old for the 3D view");
    state.scene = decode(JSON.parse(await unpack("scene-data")));
    const script = document.createElement("script");
    script.textContent = await unpack("plotly-code");
    document.head.append(script);
    state.moment = state.scene.moments.length - 1;
    byId("moment").value = state.moment;
    byId("view").textContent = "";
    await draw();
    byId("moment").addEventListener("input", (event) => { state.moment = +event.target.value; draw(); });
    byId("play").addEventListener("click", play);
    for (const id of ["colour", "show-body", "show-points", "show-plane"]) if (byId(id)) byId(id).addEventListener("change", draw);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
    sleepWhereTouched();
    document.body.dataset.view = "ready";
  } catch (error) {
    document.body.classList.add("no-webgl");
    byId("why-no-view").textContent = `The 3D view cannot be shown here (${error.message}); these are still pictures of it.`;
    document.body.dataset.view = "failed";
  }
}
if (byId("view")) start();
