// Choose a part of a topic's volume: by dragging across the picture, or by two sliders.
"use strict";

(() => {
  const live = document.getElementById("live");
  let start = null;

  function parts() {
    const svg = live.querySelector("[data-histogram]");
    const form = live.querySelector("[data-brush]");
    if (!svg || !form) return null;
    const [from, to] = form.querySelectorAll("[data-edge]");
    return { svg, form, from, to, counts: svg.dataset.counts.split(",") };
  }

  function typed(ms) {
    return new Date(ms).toISOString().slice(0, 19);
  }

  // Whole seconds around the columns: a field has no more.
  function choose(found, one, other) {
    const first = Math.min(one, other);
    const last = Math.max(one, other);
    const begin = Date.parse(found.svg.dataset.from);
    const end = Date.parse(found.svg.dataset.until);
    const width = Number(found.svg.dataset.width);
    const until = Math.min(begin + (last + 1) * width, end);
    found.form.elements.since.value = typed(Math.floor((begin + first * width) / 1000) * 1000);
    found.form.elements.until.value = typed(Math.ceil(until / 1000) * 1000);
    found.from.value = first;
    found.to.value = last;
    const area = found.svg.querySelector(".chosen");
    area.setAttribute("x", first);
    area.setAttribute("width", last - first + 1);
    const chosen = found.counts.slice(first, last + 1);
    const sum = chosen.includes("?") ? "?" : chosen.reduce((total, count) => total + Number(count), 0);
    const told = found.form.querySelector("[data-chosen]");
    told.textContent = told.dataset.text.replace("#", sum);
    found.svg.dataset.held = "yes"; // an update must not take the choice away
  }

  function column(svg, event, count) {
    const box = svg.getBoundingClientRect();
    const at = Math.floor(((event.clientX - box.left) / box.width) * count);
    return Math.min(Math.max(at, 0), count - 1);
  }

  function show() {
    for (const edge of live.querySelectorAll(".edge[hidden]")) edge.hidden = false;
  }

  live.addEventListener("pointerdown", (event) => {
    const found = parts();
    if (!found || !found.svg.contains(event.target) || event.button !== 0) return;
    event.preventDefault();
    found.svg.setPointerCapture(event.pointerId);
    start = column(found.svg, event, found.counts.length);
    choose(found, start, start);
  });
  live.addEventListener("pointermove", (event) => {
    const found = parts();
    if (start !== null && found) choose(found, start, column(found.svg, event, found.counts.length));
  });
  for (const name of ["pointerup", "pointercancel"]) {
    live.addEventListener(name, () => { start = null; });
  }
  live.addEventListener("input", (event) => {
    const found = parts();
    if (found && "edge" in event.target.dataset) choose(found, Number(found.from.value), Number(found.to.value));
  });
  new MutationObserver(show).observe(live, { childList: true, subtree: true, attributes: true, attributeFilter: ["hidden"] });
  show();
})();
