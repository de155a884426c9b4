"use strict";
// Charts, searchable logs and, where a server answers beside the page, news. What is here beside the page's HTML is
// an addition: without scripts the charts are pictures and the ends of the logs are there.

const page = { document: JSON.parse(document.getElementById("document").textContent), charts: new Map(), smoothing: 0 };
const served = document.body.hasAttribute("data-served");

// Charts

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const pointsAt = (path) => path.reduce((found, key) => (found === undefined ? found : found[key]), page.document);

// As wording.py has it: six digits, and from 1e6 on and below 1e-4 an exponent of at least two.
function numberWords(value, digits = 6) {
  if (value == null || !Number.isFinite(value)) return value == null ? "" : String(value);
  const [mantissa, power] = value.toExponential(digits - 1).split("e");
  if (value === 0 || (Number(power) >= -4 && Number(power) < digits)) return String(Number(value.toPrecision(digits)));
  return `${Number(mantissa)}e${power[0]}${power.slice(1).padStart(2, "0")}`;
}

// An exponential moving average, without its usual pull towards the first value.
function smoothed(values, weight) {
  let sum = 0, weights = 0;
  return values.map((value) => {
    if (value == null) return value;
    sum = weight * sum + (1 - weight) * value;
    weights = weight * weights + (1 - weight);
    return sum / weights;
  });
}

function chartData(figure) {
  const lines = JSON.parse(figure.dataset.lines).filter(([, path]) => pointsAt(path));
  const tables = lines.map(([, path]) => {
    const points = pointsAt(path).slice().sort((a, b) => a[0] - b[0]);
    return [points.map((point) => point[0]), points.map((point) => point[1])];
  });
  const joined = tables.length ? uPlot.join(tables) : [[]];
  const data = page.smoothing ? [joined[0], ...joined.slice(1), ...joined.slice(1).map((values) => smoothed(values, page.smoothing))] : joined;
  return { names: lines.map(([name]) => name), colors: lines.map(([, , number], index) => number ?? index), data };
}

const across = (figure) => figure.dataset.across || "step";

function chartSeries(figure, names, colors) {
  const line = (name, index, faint) => ({
    label: faint ? `${name}, as logged` : name,
    stroke: color(`--c${colors[index] % 8}`) + (faint ? "55" : ""),
    mark: `c${colors[index] % 8}`,
    width: faint ? 1 : 1.6,
    spanGaps: true,
    value: (_, value) => numberWords(value),
  });
  const raw = names.map((name, index) => line(name, index, page.smoothing > 0));
  return [{ label: across(figure), value: (_, value) => numberWords(value) }, ...raw, ...(page.smoothing ? names.map((name, index) => line(name, index, false)) : [])];
}

// uPlot would give a line that is 0 throughout an axis to 100, and one on a logarithmic axis a line for each digit.
const heights = (plot, low, high) => (low == null ? [null, null] : low === 0 && high === 0 ? [0, 1] : uPlot.rangeNum(low, high, 0.1, true));
const wholePowers = (plot, splits) => splits.map((value) => (value != null && Number.isInteger(Math.round(Math.log10(value) * 1e6) / 1e6) ? value : null));

const wholeSteps = Array.from({ length: 12 }, (_, power) => [1, 2, 5].map((digit) => digit * 10 ** power)).flat();

const plotHeight = (figure) => (figure.classList.contains("minor") ? 170 : 240);

function chartOptions(figure, names, colors) {
  const axis = { stroke: color("--soft"), grid: { stroke: color("--line"), width: 1 }, ticks: { stroke: color("--line"), width: 1 }, font: "11px system-ui, sans-serif", labelFont: "11px system-ui, sans-serif", labelSize: 16 };
  const unit = figure.dataset.unit;
  const logarithmic = figure.hasAttribute("data-logarithmic");
  const fromZero = across(figure) === "seconds";
  const step = figure.closest("[data-step]");
  return {
    width: Math.max(200, figure.clientWidth - 20),
    height: plotHeight(figure),
    series: chartSeries(figure, names, colors),
    scales: { x: { time: false }, y: logarithmic ? { distr: 3 } : { range: fromZero ? (_, low, high) => [0, high > 0 ? 1.05 * high : 1] : heights } },
    axes: [{ ...axis, label: across(figure), size: 30, ...(fromZero ? {} : { incrs: wholeSteps }) }, { ...axis, label: unit || undefined, size: 62, ...(logarithmic ? { grid: { ...axis.grid, filter: wholePowers }, ticks: { ...axis.ticks, filter: wholePowers } } : {}), values: (_, splits) => splits.map((value) => (value == null ? "" : numberWords(value))) }],
    cursor: { sync: { key: `${step ? step.dataset.step : "compare"} ${across(figure)}` }, drag: { x: true, y: false } },
    legend: { show: false },
    hooks: { setCursor: [(plot) => tellValues(figure, plot)] },
  };
}

// What the pointer does, by keys: arrows, Home and End go from value to value, + and - zoom, Escape shows all.
function pressedKey(plot, event) {
  const steps = plot.data[0], last = steps.length - 1;
  const at = plot.cursor.left < 0 || plot.cursor.idx == null ? -1 : plot.cursor.idx;
  const next = { ArrowRight: Math.min(at + 1, last), ArrowLeft: Math.max(at - 1, 0), Home: 0, End: last }[event.key];
  const factor = { "+": 0.5, "-": 2 }[event.key];
  const { min, max } = plot.scales.x;
  if (event.key === "Escape") plot.setData(plot.data, true);
  else if (factor) {
    const middle = at < 0 ? (min + max) / 2 : steps[at], half = Math.max(1, ((max - min) * factor) / 2);
    plot.setScale("x", { min: Math.max(steps[0], middle - half), max: Math.min(steps[last], middle + half) });
  } else if (next !== undefined) {
    if (steps[next] < min || steps[next] > max) plot.setScale("x", { min: Math.min(min, steps[next]), max: Math.max(max, steps[next]) });
    requestAnimationFrame(() => plot.setCursor({ left: plot.valToPos(steps[next], "x"), top: plot.over.clientHeight / 2 }));
  } else return;
  event.preventDefault();
}

function listenToKeys(figure, plot) {
  plot.root.tabIndex = 0;
  plot.root.addEventListener("keydown", (event) => pressedKey(plot, event));
  plot.root.addEventListener("focus", () => figure.querySelector("figcaption").setAttribute("aria-live", "polite"));
  plot.root.addEventListener("blur", () => plot.setCursor({ left: -10, top: -10 }));
}

// The caption tells the values under the pointer, and the last ones while there is none.
function tellValues(figure, plot) {
  const caption = figure.querySelector("figcaption");
  const at = plot.cursor.idx;
  if (at == null || plot.cursor.left < 0) {
    if (figure.told !== undefined) { caption.replaceChildren(...figure.told); delete figure.told; }
    return;
  }
  if (figure.told === undefined) figure.told = [...caption.childNodes];
  const parts = [`${across(figure)} ${numberWords(plot.data[0][at])}`];
  plot.series.slice(1).forEach((series, index) => {
    const value = plot.data[index + 1][at];
    if (value == null) return;
    const mark = document.createElement("i");
    mark.className = series.mark;
    const words = document.createElement("span");
    words.append(mark, `${series.label} ${numberWords(value)}`);
    parts.push(" · ", words);
  });
  caption.replaceChildren(...parts);
}

function drawChart(figure) {
  const { names, colors, data } = chartData(figure);
  if (data[0].length < 1) return;
  const old = page.charts.get(figure);
  if (old && old.names === names.join() && old.smoothing === page.smoothing && !old.stale) {
    const { min, max } = old.plot.scales.x;
    const zoomed = min > old.plot.data[0][0] || max < old.plot.data[0].at(-1);
    old.plot.setData(data, !zoomed);
    if (zoomed) old.plot.setScale("x", { min, max });
    return;
  }
  if (old) old.plot.destroy();
  const plot = new uPlot(chartOptions(figure, names, colors), data, placeOf(figure));
  plot.root.setAttribute("role", "img");
  plot.root.setAttribute("aria-label", figure.querySelector("figcaption").textContent.trim());
  listenToKeys(figure, plot);
  page.charts.set(figure, { plot, names: names.join(), smoothing: page.smoothing });
  widths.observe(figure);
}

const widths = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    const chart = page.charts.get(target);
    const width = Math.max(200, target.clientWidth - 20);
    if (chart && chart.plot.width !== width) chart.plot.setSize({ width, height: chart.plot.height });
  }
});

// Where a chart is drawn, as high as it will be: what is below stays where it is when that happens.
function placeOf(figure) {
  const old = figure.querySelector(".plot");
  if (old) return old;
  const place = document.createElement("div");
  place.className = "plot";
  place.style.height = `${plotHeight(figure)}px`;
  figure.classList.add("live");
  figure.append(place);
  return place;
}

const hasPoints = (figure) => JSON.parse(figure.dataset.lines).some(([, path]) => pointsAt(path)?.length);

// A chart is drawn when it comes into view: a page of many steps opens at once.
const views = new IntersectionObserver((entries) => {
  for (const entry of entries) if (entry.isIntersecting) drawChart(entry.target);
}, { rootMargin: "400px" });

function drawAll(stale) {
  for (const figure of document.querySelectorAll("figure[data-lines]")) {
    const chart = page.charts.get(figure);
    if (chart) { chart.stale = stale; drawChart(figure); continue; }
    if (hasPoints(figure)) placeOf(figure);
    views.observe(figure);
  }
}

addEventListener("beforeprint", () => document.querySelectorAll("figure.live").forEach(drawChart));

function listenToTools() {
  for (const tools of document.querySelectorAll(".tools")) tools.hidden = false;
  const smoothing = document.getElementById("smoothing");
  if (smoothing) smoothing.addEventListener("input", () => { page.smoothing = Number(smoothing.value); drawAll(true); });
  const whole = document.getElementById("unzoom");
  if (whole) whole.addEventListener("click", () => { for (const { plot } of page.charts.values()) plot.setData(plot.data, true); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawAll(true));
  addEventListener("beforeprint", () => document.querySelectorAll("figure[data-lines]").forEach(drawChart));
}

// Logs

const here = () => location.pathname.replace(/\/$/, "");

async function ask(what, values) {
  const answer = await fetch(`${here()}/${what}?${new URLSearchParams(values)}`, { cache: "no-store" });
  if (!answer.ok) throw new Error(`the server said ${answer.status}`);
  return answer.json();
}

function marked(line, wanted) {
  const parts = document.createDocumentFragment();
  const lower = line.toLowerCase(), word = wanted.toLowerCase();
  let from = 0;
  for (let at = lower.indexOf(word); at >= 0 && word; at = lower.indexOf(word, from)) {
    const mark = document.createElement("mark");
    mark.textContent = line.slice(at, at + word.length);
    parts.append(line.slice(from, at), mark);
    from = at + word.length;
  }
  parts.append(line.slice(from), "\n");
  return parts;
}

function shownMatches(log, matches, wanted) {
  const place = log.querySelector("pre");
  if (log.kept === undefined) log.kept = place.textContent;
  place.replaceChildren(...matches.map((line) => marked(line, wanted)));
  log.open = matches.length > 0;
  log.hidden = !log.open; // of a thousand ranks one may have the line
}

function restoreLogs(logs) {
  for (const log of logs.querySelectorAll(".log")) {
    if (log.kept === undefined) continue;
    const place = log.querySelector("pre");
    place.textContent = log.kept;
    place.scrollTop = place.scrollHeight;
    log.hidden = false;
    delete log.kept;
  }
  logs.querySelector(".found").textContent = "";
}

async function searchLogs(logs, wanted) {
  const said = logs.querySelector(".found");
  if (!wanted) return restoreLogs(logs);
  let total = 0, shown = 0;
  for (const log of logs.querySelectorAll(".log")) {
    let lines, count;
    if (served) {
      const answer = await ask("search", { step: logs.closest("[data-step]").dataset.step, log: log.dataset.log, text: wanted });
      if (logs.querySelector(".search").value !== wanted) return undefined;
      lines = answer.matches.map((match) => match.line);
      count = answer.count;
    } else {
      const text = log.kept ?? log.querySelector("pre").textContent;
      lines = text.split("\n").filter((line) => line.toLowerCase().includes(wanted.toLowerCase()));
      count = lines.length;
    }
    shownMatches(log, lines, wanted);
    total += count;
    shown += lines.length;
  }
  said.textContent = `${total} ${total === 1 ? "line" : "lines"}${shown < total ? `, the first ${shown} here` : ""}${served ? "" : " in the ends that are here"}`;
  return undefined;
}

// What was logged before, when the reader has scrolled to the top of what is shown.
async function readEarlier(log) {
  const place = log.querySelector("pre");
  if (log.busy || log.kept !== undefined || Number(log.dataset.start) <= 0) return;
  log.busy = true;
  const piece = await ask("logs", { step: log.closest("[data-step]").dataset.step, log: log.dataset.log, before: log.dataset.start }).finally(() => { log.busy = false; });
  const height = place.scrollHeight;
  place.prepend(piece.text);
  log.dataset.start = piece.start;
  place.scrollTop += place.scrollHeight - height;
}

async function followLog(log) {
  const place = log.querySelector("pre");
  if (!log.open || log.kept !== undefined || log.busy) return;
  log.busy = true;
  const piece = await ask("logs", { step: log.closest("[data-step]").dataset.step, log: log.dataset.log, after: log.dataset.end }).finally(() => { log.busy = false; });
  if (piece.start < Number(log.dataset.end)) place.textContent = "";
  const atEnd = place.scrollTop + place.clientHeight >= place.scrollHeight - 30;
  place.append(piece.text);
  log.dataset.end = piece.end;
  if (atEnd) place.scrollTop = place.scrollHeight;
}

function listenToLogs(within) {
  const all = within.matches(".logs") ? [within] : within.querySelectorAll(".logs");
  for (const logs of all) {
    let timer;
    const input = logs.querySelector(".search");
    input.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(() => searchLogs(logs, input.value), 150); });
    for (const log of logs.querySelectorAll(".log")) {
      const place = log.querySelector("pre");
      const toEnd = () => { if (log.open && !log.seen) { place.scrollTop = place.scrollHeight; log.seen = true; } };
      toEnd();
      log.addEventListener("toggle", toEnd);
      if (served) place.addEventListener("scroll", () => { if (place.scrollTop < 40 && log.seen) readEarlier(log); });
    }
  }
}

document.addEventListener("keydown", (event) => {
  const first = document.querySelector(".search");
  if (event.key === "/" && first && !/^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) { event.preventDefault(); first.focus(); }
});

// News: the parts of the page that have changed take the place of those that are shown; what is open stays open.

function replacePart(old, fresh) {
  if (old.dataset.keys !== undefined && old.dataset.keys === fresh.dataset.keys) return; // logs follow by themselves
  if (old.dataset.whole === undefined ? old.innerHTML === fresh.innerHTML : old.dataset.whole === fresh.innerHTML) return;
  const open = [...old.querySelectorAll("details")].map((one) => one.open);
  const ticked = new Set([...old.querySelectorAll("input:checked")].map((one) => one.value));
  const whole = fresh.innerHTML;
  if (old.classList.contains("curves") && old.querySelectorAll("figure").length === fresh.querySelectorAll("figure").length) {
    const figures = [...old.querySelectorAll("figure")];
    fresh.querySelectorAll("figure").forEach((figure, index) => {
      for (const name of ["data-lines", "data-unit"]) figures[index].setAttribute(name, figure.getAttribute(name));
      delete figures[index].told;
      figures[index].querySelector("figcaption").replaceWith(figure.querySelector("figcaption"));
    });
    old.dataset.whole = whole;
    return;
  }
  for (const figure of old.querySelectorAll("figure")) page.charts.delete(figure);
  old.replaceWith(fresh);
  fresh.dataset.whole = whole;
  fresh.querySelectorAll("details").forEach((one, index) => { if (open[index] !== undefined) one.open = open[index]; });
  for (const one of fresh.querySelectorAll("input[type=checkbox]")) one.checked = ticked.has(one.value);
  for (const tools of fresh.querySelectorAll(".tools")) tools.hidden = false;
  if (fresh.matches(".logs")) listenToLogs(fresh);
}

function takeNews(html) {
  const fresh = new DOMParser().parseFromString(html, "text/html");
  page.document = JSON.parse(fresh.getElementById("document").textContent);
  document.body.toggleAttribute("data-follows", fresh.body.hasAttribute("data-follows"));
  const parts = (from) => [...from.querySelectorAll("[data-part]")].map((one) => one.dataset.part);
  if (parts(document).join() !== parts(fresh).join()) { // a step has got its first curves or logs: its place is new
    const place = (one) => (one.closest("[data-part]") ?? one.querySelector("[data-part]")).dataset.part + one.querySelector("summary").firstChild.textContent;
    const open = new Set([...document.querySelectorAll("details[open]")].map(place));
    document.getElementById("main").querySelectorAll("article").forEach((article) => {
      const other = fresh.getElementById(article.id);
      if (other && parts(article).join() !== parts(other).join()) {
        article.replaceWith(other);
        for (const one of other.querySelectorAll("details")) if (open.has(place(one))) one.open = true;
        for (const tools of other.querySelectorAll(".tools")) tools.hidden = false;
        listenToLogs(other);
      }
    });
  }
  for (const old of document.querySelectorAll("[data-part]")) {
    const other = fresh.querySelector(`[data-part="${CSS.escape(old.dataset.part)}"]`);
    if (other) replacePart(old, other);
  }
  drawAll(false);
}

async function follow() {
  let seen = "", pause = 1000;
  while (document.body.hasAttribute("data-follows")) {
    await new Promise((resolve) => { setTimeout(resolve, pause); });
    const began = performance.now();
    try {
      const answer = await fetch(`${location.href.split("#")[0]}`, { headers: { "If-None-Match": seen }, cache: "no-store" });
      if (answer.status === 200) { seen = answer.headers.get("ETag") || ""; takeNews(await answer.text()); }
      for (const log of document.querySelectorAll(".log[open]")) await followLog(log);
    } catch {
      return; // the server has ended: the page stays as it is
    }
    pause = Math.max(1000, 5 * (performance.now() - began));
  }
}

listenToTools();
listenToLogs(document.getElementById("main"));
drawAll(false);
if (served) follow();
