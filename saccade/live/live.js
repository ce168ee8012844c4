// The page of `saccade live`: asks for a picture, draws it, asks for the next. Nothing comes from anywhere but our own server.
"use strict";

const TRAIL_US = 1_000_000; // of a track's path that is drawn
const HISTORY = 240; // columns of the event rate, four a second
const FOLLOWED = 1 / 3; // of the least score: boxes with a track are shown down to there (saccade.types)
const RETRY_MS = 1000;
const RATES_HZ = [1, 5, 20, 60, 200, 1000]; // below the slider
const TOLD_MS = 8000; // that an answer to something that can't be done stays
const FIGURES = [
  // key, name, what it looks like, what it means
  ["asked", "asked", (value) => `${number(value)} Hz`, "answers per second of event time that the slider asks for"],
  ["reached_hz", "reached", (value) => (value ? `${number(value)} Hz` : "–"), "answers per second of event time that the detector gives"],
  ["latency_p50_ms", "latency p50", milliseconds, "from the arrival of a window's last event to its boxes; half of the last 1000 answers were quicker"],
  ["latency_p99_ms", "latency p99", milliseconds, "from the arrival of a window's last event to its boxes; 99 % of the last 1000 answers were quicker"],
  ["shown_p50_ms", "on this page p50", milliseconds, "from the same arrival to the drawing on this page; half of the last 1000 pictures were quicker"],
  ["shown_p99_ms", "on this page p99", milliseconds, "from the same arrival to the drawing on this page; 99 % of the last 1000 pictures were quicker"],
  ["merged_windows", "merged windows", count, "without an answer of their own, because steps took too long"],
  ["late_events", "late events", count, "that came after their window was finished, so they were left out"],
  ["dropped_events", "dropped events", count, "that a full queue had no place for"],
  ["unseen_events", "unseen events", count, "between windows that are further apart than they are long, so in none of them"],
  ["outside_events", "outside events", count, "with a place that the sensor doesn't have, so they were left out"],
  ["lost_packets", "lost packets", count, "that never arrived"],
  ["bad_portions", "damaged packets", count, "that were left out"],
];
const LOSSES = ["late_events", "dropped_events", "outside_events", "lost_packets", "bad_portions"]; // red when they aren't zero
const SHOWN = ["shown_p50_ms", "shown_p99_ms"]; // only where server and page have the same clock
const RARER = ["unseen_events", "outside_events"]; // shown when there are any
const RARE = [...RARER, "lost_packets", "bad_portions"]; // of recordings, which have no packets
const WORDS = {
  playing: ({ playable, speed }) => (!playable ? "live" : speed === 1 ? "playing" : `playing at ${speed} ×`),
  paused: () => "paused",
  waiting: () => "waiting for the first events",
  silent: (picture) => `silent for ${Math.round(picture.silent_s)} s`,
  ended: () => "the source has ended",
};

const element = (id) => document.getElementById(id);
const dark = matchMedia("(prefers-color-scheme: dark)");
const sensor = document.createElement("canvas"); // a picture in pixels of the sensor, enlarged when it is drawn

let socket = null;
let picture = null; // the newest: the JSON of a message, and its pixels
let palette = makePalette();
let panels = []; // {root, canvas, figures, trails} per detector
let eventRates = [];
let countedAt = 0;
let drawnMs = []; // per detector: from the arrival of an answer's last event to its drawing, of the last 1000 pictures
let leastScore = null; // until it is moved, that of the weights
let told = { text: "", atMs: 0 }; // what the server answered to something that can't be done
let holding = null; // the slider that a person moves: the server's value doesn't move it back meanwhile

function number(value) {
  return value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2);
}

function milliseconds(value) {
  return value === null ? "–" : `${number(value)} ms`;
}

function count(value) {
  return value.toLocaleString("en");
}

function eventsPerSecond(value) {
  const [size, unit] = value >= 1e6 ? [1e6, "M/s"] : value >= 1e3 ? [1e3, "k/s"] : [1, "/s"];
  return `${(value / size).toFixed(size === 1 ? 0 : 1)} ${unit}`;
}

// --- the server

function connect() {
  socket = new WebSocket(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/socket${location.search}`);
  socket.binaryType = "arraybuffer";
  socket.onopen = () => ask("ready");
  socket.onmessage = (message) => {
    if (typeof message.data === "string") {
      told = { text: JSON.parse(message.data).problem, atMs: performance.now() };
      return;
    }
    picture = read(message.data);
    requestAnimationFrame(draw); // a hidden page draws nothing, so it asks for nothing
  };
  socket.onclose = () => {
    setState("lost", "no connection to saccade; trying again");
    setTimeout(connect, RETRY_MS);
  };
}

function ask(name, value) {
  if (socket.readyState === WebSocket.OPEN) {
    socket.send(JSON.stringify(value === undefined ? { do: name } : { do: name, value }));
  }
}

function read(data) {
  const length = new DataView(data).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(data, 4, length)));
  return { ...header, pixels: new Uint8Array(data, 4 + length) };
}

// --- drawing

function makePalette() {
  // Of every byte a pixel may have: paper, or ink that is stronger the newer the event is; above 128 it got brighter.
  const [paper, darker, brighter] = dark.matches
    ? [[27, 30, 34], [255, 122, 89], [110, 168, 255]]
    : [[255, 255, 255], [215, 60, 30], [20, 90, 200]];
  const colours = new Uint32Array(256);
  for (let byte = 0; byte < 256; byte += 1) {
    const age = byte & 127;
    const strength = age ? 0.3 + (0.7 * age) / 127 : 0;
    const ink = byte & 128 ? brighter : darker;
    const [red, green, blue] = paper.map((value, i) => Math.round(value + strength * (ink[i] - value)));
    colours[byte] = (255 << 24) | (blue << 16) | (green << 8) | red;
  }
  return colours;
}

function draw() {
  if (picture === null) return;
  const now = picture;
  makePanels(now);
  drawSensor(now);
  now.boxes.forEach((boxes, i) => drawPanel(panels[i], boxes, now));
  measureDrawing(now);
  showState(now);
  ask("ready");
}

function measureDrawing(now) {
  if (!["127.0.0.1", "localhost", "[::1]"].includes(location.hostname)) return;
  const nowMs = performance.timeOrigin + performance.now();
  drawnMs = now.arrived_s.map((arrived, i) => {
    const { last, values } = drawnMs[i] ?? { last: null, values: [] };
    if (arrived === null || arrived === last) return { last, values };
    const first = last === null; // an answer from before this page was opened
    return { last: arrived, values: first ? values : [...values, nowMs - 1000 * arrived].slice(-1000) };
  });
}

function percentile(values, share) {
  if (!values || !values.length) return null;
  return [...values].sort((one, other) => one - other)[Math.min(values.length - 1, Math.floor(share * values.length))];
}

function drawSensor({ rows, columns, pixels }) {
  if (!rows) return;
  if (sensor.width !== columns || sensor.height !== rows) {
    sensor.width = columns;
    sensor.height = rows;
  }
  const context = sensor.getContext("2d");
  const image = context.createImageData(columns, rows);
  const words = new Uint32Array(image.data.buffer);
  for (let i = 0; i < pixels.length; i += 1) words[i] = palette[pixels[i]];
  context.putImageData(image, 0, 0);
}

function drawPanel(panel, boxes, now) {
  const { canvas } = panel;
  const density = devicePixelRatio || 1;
  const [width, height] = [Math.round(canvas.clientWidth * density), Math.round(canvas.clientHeight * density)];
  if (canvas.width !== width || canvas.height !== height) {
    canvas.width = width;
    canvas.height = height;
  }
  const context = canvas.getContext("2d");
  context.setTransform(1, 0, 0, 1, 0, 0);
  context.imageSmoothingEnabled = false;
  context.clearRect(0, 0, width, height);
  if (!now.rows) return;
  context.drawImage(sensor, 0, 0, width, height);
  const scale = width / now.width;
  const shown = boxes.filter((box) => box[4] >= (box[6] < 0 ? leastScore : FOLLOWED * leastScore));
  follow(panel.trails, shown, now.time_us);
  for (const [left, top, right, bottom, , , track] of shown) {
    const colour = colourOf(track);
    drawTrail(context, panel.trails.get(track), colour, scale, density);
    context.strokeStyle = colour;
    context.lineWidth = (track < 0 ? 1.5 : 2.5) * density;
    context.strokeRect(left * scale, top * scale, (right - left) * scale, (bottom - top) * scale);
  }
  const taken = [];
  for (const box of shown) drawLabel(context, box, panel.classes, scale, density, taken);
}

function colourOf(track) {
  // Tracks with close numbers get distant hues. Yellow and green look lighter than they are: darker, so that white letters can be read.
  const hue = (335 + track * 222.5) % 360;
  const lightness = dark.matches ? 66 : 42 - 13 * Math.max(0, Math.cos(((hue - 100) * Math.PI) / 180));
  return track < 0 ? (dark.matches ? "#a9adb3" : "#6e7074") : `hsl(${hue} 80% ${lightness}%)`;
}

function follow(trails, boxes, timeUs) {
  for (const [track, points] of trails) {
    const kept = points.filter((point) => point.timeUs > timeUs - TRAIL_US && point.timeUs <= timeUs);
    if (kept.length) trails.set(track, kept);
    else trails.delete(track);
  }
  for (const [left, top, right, bottom, , , track] of boxes) {
    if (track < 0) continue;
    if (!trails.has(track)) trails.set(track, []);
    trails.get(track).push({ timeUs, x: (left + right) / 2, y: (top + bottom) / 2 });
  }
}

function drawTrail(context, points, colour, scale, density) {
  if (!points || points.length < 2) return;
  context.strokeStyle = colour;
  context.lineWidth = 2 * density;
  context.beginPath();
  for (const { x, y } of points) context.lineTo(x * scale, y * scale);
  context.stroke();
}

function drawLabel(context, [left, top, , bottom, score, index, track], classes, scale, density, taken) {
  const text = `${classes[index]} ${score.toFixed(2)}${track < 0 ? "" : ` #${track}`}`;
  context.font = `${12 * density}px system-ui, sans-serif`;
  const [width, height] = [context.measureText(text).width + 8 * density, 17 * density];
  const x = Math.max(0, Math.min(left * scale, context.canvas.width - width));
  const places = [top * scale - height, bottom * scale, top * scale].map((y) => Math.max(0, Math.min(y, context.canvas.height - height)));
  const free = (y) => !taken.some((other) => x < other.x + other.width && other.x < x + width && y < other.y + height && other.y < y + height);
  const y = places.find(free) ?? places[0];
  taken.push({ x, y, width });
  context.fillStyle = colourOf(track);
  context.fillRect(x, y, width, height);
  context.fillStyle = dark.matches ? "#111" : "#fff";
  context.textBaseline = "middle";
  context.fillText(text, x + 4 * density, y + height / 2);
}

// --- what is around the pictures

function makePanels(now) {
  document.documentElement.style.setProperty("--shape", now.width ? now.width / now.height : 1.33);
  if (panels.map((panel) => panel.name).join() === now.panels.map((panel) => panel.name).join()) return;
  panels = now.panels.map((detector) => {
    const root = element("panel").content.firstElementChild.cloneNode(true);
    const figures = {};
    for (const [key, name, , meaning] of FIGURES) {
      const row = document.createElement("div");
      row.title = meaning;
      row.append(document.createElement("dt"), document.createElement("dd"));
      row.firstChild.textContent = name;
      figures[key] = row.lastChild;
      figures[key].dataset.figure = key;
      root.querySelector("dl").append(row);
    }
    root.querySelector("h2").textContent = detector.name;
    return { name: detector.name, root, canvas: root.querySelector("canvas"), figures, classes: detector.classes, trails: new Map() };
  });
  element("panels").replaceChildren(...panels.map((panel) => panel.root));
}

function showState(now) {
  element("source").textContent = now.source;
  element("time").textContent = `${(now.time_us / 1e6).toFixed(3)} s${now.round > 1 ? ` · round ${now.round}` : ""}`;
  setState(now.state, WORDS[now.state](now));
  document.title = `${now.source} – saccade live`;
  show(element("problem"), performance.now() - told.atMs < TOLD_MS ? told.text : now.problem);
  element("playback").hidden = !now.playable;
  for (const key of document.querySelectorAll(".for-playback")) key.hidden = !now.playable;
  showPlace(now);
  showSaving(now.saving);
  for (const id of ["window", "stepping"]) if (holding !== id) element(id).value = now[id];
  element("memory").textContent = `${count(now.memory_mb)} MB`;
  element("pause").textContent = now.state === "paused" ? "Play" : "Pause";
  if (holding !== "speed") showSpeed(now.speed);
  if (leastScore === null) setScore(now.score);
  if (holding !== "rate") element("rate").value = Math.round(100 * Math.log10(now.rate_hz));
  showRate(holding === "rate" ? sliderRate() : now.rate_hz);
  if (performance.now() - countedAt < 250) return; // what follows changes slowly
  countedAt = performance.now();
  now.panels.forEach((detector, i) => showFigures(panels[i], { ...detector, asked: now.rate_hz }, drawnMs[i]?.values));
  showEventRate(now.events_per_s);
}

function showPlace(now) {
  const known = now.playable && now.end_us !== null;
  element("place-row").hidden = !known;
  for (const key of document.querySelectorAll(".for-place")) key.hidden = !known;
  if (!known) return;
  element("place").max = (now.end_us - now.start_us) / 1e6;
  if (holding !== "place") element("place").value = (now.time_us - now.start_us) / 1e6;
  element("place-shown").textContent = `${Number(element("place").value).toFixed(2)} of ${Number(element("place").max).toFixed(2)} s`;
}

function showSaving(saving) {
  const active = saving !== null && saving.state === "saving";
  element("save").textContent = active ? "Stop saving" : "Save";
  element("save").setAttribute("aria-pressed", active);
  const told = saving && [saving.state, saving.problem, ...saving.files].join("|");
  if (!saving || element("saved").dataset.told === told) return;
  element("saved").dataset.told = told;
  element("saved").hidden = false;
  const words = { saving: "Saving ", finishing: "Finishing ", saved: "Saved " }[saving.state];
  const lost = saving.lost ? `; ${count(saving.lost)} events were too many for the disk` : "";
  const names = saving.files.map((name) => {
    const link = document.createElement(saving.state === "saved" ? "a" : "span");
    link.textContent = name;
    if (link.tagName === "A") link.href = `saved/${encodeURIComponent(name)}${location.search}`;
    return link;
  });
  element("saved").replaceChildren(words, ...names.flatMap((name) => [name, " "]), saving.problem ? `ended: ${saving.problem}` : lost);
}

function showFigures({ root, figures }, detector, drawn) {
  const values = { ...detector, shown_p50_ms: percentile(drawn, 0.5), shown_p99_ms: percentile(drawn, 0.99) };
  for (const [key, , text] of FIGURES) {
    figures[key].textContent = text(values[key]);
    figures[key].classList.toggle("lost", LOSSES.includes(key) && values[key] > 0);
    figures[key].parentElement.hidden = ((picture.playable ? RARE : RARER).includes(key) && !values[key]) || (SHOWN.includes(key) && values[key] === null);
  }
  figures.reached_hz.classList.toggle("behind", values.reached_hz > 0 && values.reached_hz < 0.9 * values.asked);
  show(root.querySelector("p"), values.problem);
}

function showEventRate(value) {
  eventRates = [...eventRates, value].slice(-HISTORY);
  element("event-rate").textContent = eventsPerSecond(value);
  const canvas = element("event-history");
  const density = devicePixelRatio || 1;
  [canvas.width, canvas.height] = [canvas.clientWidth * density, canvas.clientHeight * density];
  const context = canvas.getContext("2d");
  const most = Math.max(...eventRates, 1);
  element("event-most").textContent = most > 1 ? `up to ${eventsPerSecond(most)}` : "";
  context.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--accent");
  const step = canvas.width / HISTORY;
  eventRates.forEach((rate, i) => {
    const height = (canvas.height * rate) / most;
    context.fillRect((HISTORY - eventRates.length + i) * step, canvas.height - height, Math.max(step, 1), height);
  });
}

function setState(state, words) {
  element("state").dataset.state = state;
  element("state").textContent = words;
}

function show(place, text) {
  place.textContent = text || "";
  place.hidden = !text;
}

// --- what a person may change

function sliderRate() {
  const rate = 10 ** (element("rate").value / 100);
  return Number(rate.toPrecision(rate < 10 ? 2 : 3));
}

function rateText(rate) {
  return Number(rate.toPrecision(3)).toString();
}

function showSpeed(speed) {
  // The command may have asked for one that isn't in the list: drive.raw@0.02.
  const { options } = element("speed");
  if (![...options].some((option) => Number(option.value) === speed)) {
    const place = [...options].find((option) => Number(option.value) > speed) ?? null;
    element("speed").insertBefore(new Option(`${speed} ×`, speed), place);
  }
  element("speed").value = speed;
}

function showRate(rate) {
  element("rate-shown").textContent = `${rateText(rate)} Hz`;
  for (const button of element("rates").children) button.setAttribute("aria-pressed", Number(button.dataset.rate) === rate);
}

function setRate() {
  showRate(sliderRate());
  ask("rate", sliderRate());
}

function makeRates() {
  for (const rate of RATES_HZ) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = rate;
    button.dataset.rate = rate;
    button.setAttribute("aria-label", `${rate} Hz`);
    button.style.left = `${(100 * Math.log10(rate)) / 3}%`;
    button.addEventListener("click", () => ask("rate", rate));
    element("rates").append(button);
  }
}

function setScore(score) {
  leastScore = Math.min(0.95, Math.max(0.1, score));
  element("score").value = leastScore;
  element("score-shown").textContent = leastScore.toFixed(2);
}

function moveBy(id, steps) {
  element(id).value = Number(element(id).value) + steps * Number(element(id).step);
}

function changeSpeed(by) {
  const { options, selectedIndex } = element("speed");
  element("speed").selectedIndex = Math.max(0, Math.min(options.length - 1, selectedIndex + by));
  ask("speed", Number(element("speed").value));
}

function seek(seconds) {
  ask("seek", Math.min(Number(element("place").max), Math.max(0, seconds)));
}

function seekBy(share) {
  seek(Number(element("place").value) + share * Number(element("place").max));
}

function saveOrStop() {
  const active = picture.saving !== null && picture.saving.state === "saving";
  if (active) ask("stop-saving");
  else ask("save", leastScore);
}

function pauseOrPlay() {
  ask(picture.state === "paused" ? "play" : "pause");
}

const KEYS = {
  ArrowUp: () => (moveBy("rate", 10), setRate()),
  ArrowDown: () => (moveBy("rate", -10), setRate()),
  "+": () => setScore(leastScore + 0.05),
  "-": () => setScore(leastScore - 0.05),
  s: saveOrStop,
};
const PLAYBACK_KEYS = {
  " ": pauseOrPlay,
  ArrowRight: () => ask("step"),
  "[": () => changeSpeed(-1),
  "]": () => changeSpeed(1),
};
const PLACE_KEYS = {
  Home: () => seek(0),
  PageUp: () => seekBy(-0.1),
  PageDown: () => seekBy(0.1),
};

function hasKey(target, key) {
  // Whether KEY means something to what is focused.
  if (target.matches("button, a")) return key === " " || key === "Enter";
  return target.matches("select") || (target.matches("input") && /^(Arrow|Page|Home|End)/.test(key));
}

document.addEventListener("keydown", (event) => {
  if (picture === null || event.ctrlKey || event.metaKey || event.altKey) return;
  if (hasKey(event.target, event.key)) return;
  const playing = picture.playable ? PLAYBACK_KEYS[event.key] : undefined;
  const does = KEYS[event.key] ?? playing ?? (picture.playable && picture.end_us !== null ? PLACE_KEYS[event.key] : undefined);
  if (does) {
    event.preventDefault();
    does();
  }
});

for (const id of ["rate", "speed", "place", "window", "stepping"]) {
  element(id).addEventListener("pointerdown", () => (holding = id));
  for (const over of ["change", "pointerup", "blur"]) element(id).addEventListener(over, () => (holding = null));
}
element("rate").addEventListener("input", setRate);
element("score").addEventListener("input", () => setScore(Number(element("score").value)));
element("speed").addEventListener("change", () => ask("speed", Number(element("speed").value)));
element("place").addEventListener("input", () => seek(Number(element("place").value)));
for (const id of ["window", "stepping"]) element(id).addEventListener("change", () => ask(id, element(id).value));
element("save").addEventListener("click", saveOrStop);
element("pause").addEventListener("click", pauseOrPlay);
element("step").addEventListener("click", () => ask("step"));
dark.addEventListener("change", () => ((palette = makePalette()), draw()));
makeRates();
connect();
