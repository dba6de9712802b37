"use strict";

// --- The theme -----------------------------------------------------------------------------------

const theme = document.getElementById("theme");
theme.closest("label").hidden = false;
theme.addEventListener("change", () => {
  document.documentElement.dataset.theme = theme.value;
  draw();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => draw());

const NARROW = 520; // CSS pixels of a chart
// Okabe and Ito's colours, which the colour-blind distinguish too; each has a contrast of 3 or more.
const COLORS = {
  light: ["#0072b2", "#d55e00", "#a2467c", "#5c5c5c", "#00805c", "#8a6d00", "#3f51b5", "#a0522d"],
  dark: ["#56b4e9", "#e69f00", "#e08fc0", "#c8c8c8", "#2bc79a", "#f0e442", "#9fa8ff", "#ff8a65"],
};

function config(width) {
  const probe = getComputedStyle(document.body);
  const isDark = luminance(probe.backgroundColor) < 0.5;
  const ink = isDark ? "#e4e8e5" : "#1a1f1c";
  const soft = isDark ? "#9da8a1" : "#59625c";
  const line = isDark ? "#2a302c" : "#e2e5e0";
  const isNarrow = width < NARROW;
  const colors = COLORS[isDark ? "dark" : "light"];
  return {
    background: null,
    font: probe.fontFamily,
    view: { stroke: null },
    range: { category: colors },
    bar: { color: colors[0] },
    text: { color: ink, fontSize: 12 },
    axis: {
      labelColor: ink, titleColor: soft, titleFontWeight: "normal", labelFontSize: 12,
      titleFontSize: 12, gridColor: line, domainColor: line, tickColor: line,
    },
    axisY: { labelLimit: isNarrow ? 110 : 300 },
    legend: {
      orient: "top", labelColor: ink, labelFontSize: 12, labelLimit: isNarrow ? width - 60 : 300,
      columns: isNarrow ? 1 : 4, symbolStrokeWidth: 2,
    },
  };
}

function luminance(color) {
  const [red, green, blue] = color.match(/[\d.]+/g).map(Number);
  return (0.2126 * red + 0.7152 * green + 0.0722 * blue) / 255;
}

// --- Charts --------------------------------------------------------------------------------------

const views = new Map();

function draw() {
  for (const element of document.querySelectorAll(".chart")) {
    const spec = JSON.parse(element.nextElementSibling.textContent);
    const { spec: compiled } = vegaLite.compile(spec, { config: config(element.clientWidth) });
    views.get(element)?.finalize();
    // The interpreter evaluates expressions without eval, which the policy of the page forbids.
    const view = new vega.View(vega.parse(compiled, undefined, { ast: true }), {
      expr: vegaInterpreter.expressionInterpreter,
      renderer: "svg",
      container: element.firstElementChild,
    });
    views.set(element, view);
    view.runAsync();
  }
}

let width = window.innerWidth;
addEventListener("resize", () => {
  // A keyboard on the screen of a telephone changes the height only.
  if (window.innerWidth !== width) {
    width = window.innerWidth;
    draw();
  }
});
draw();

// --- Tables that sort ----------------------------------------------------------------------------

const collator = new Intl.Collator(document.documentElement.lang, { numeric: true });

function compare(one, other) {
  const [a, b] = [one.dataset.order, other.dataset.order];
  if (a !== undefined && b !== undefined) return Number(a) - Number(b);
  return collator.compare(one.textContent, other.textContent);
}

function sort(head, column) {
  const body = head.closest("table").tBodies[0];
  const isNumber = head.classList.contains("number");
  const before = head.getAttribute("aria-sort");
  // Numbers begin with the greatest, which is looked for.
  const next = (before ?? (isNumber ? "ascending" : "descending")) === "ascending"
    ? "descending" : "ascending";
  for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", next);
  const sign = next === "ascending" ? 1 : -1;
  const rows = [...body.rows];
  const isUnknown = (row) => row.cells[column].textContent === "-";
  rows.sort((one, other) =>
    // Unknown values are last in both directions.
    isUnknown(one) - isUnknown(other) || sign * compare(one.cells[column], other.cells[column]));
  body.append(...rows);
}

for (const table of document.querySelectorAll("table")) {
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    button.addEventListener("click", () => sort(head, column));
    head.replaceChildren(button);
  });
}

// --- The command ---------------------------------------------------------------------------------

const copy = document.getElementById("copy");
copy.hidden = false;
copy.addEventListener("click", async () => {
  const text = document.getElementById("command-text");
  const copied = document.getElementById("copied");
  getSelection().selectAllChildren(text);
  // A page from a disk has no clipboard in some browsers; then the selection is the help.
  const done = navigator.clipboard?.writeText(text.textContent) ?? Promise.reject();
  copied.textContent = await done.then(() => copy.dataset.done, () => copy.dataset.failed);
});
