// Live updates, the keyboard, and buttons that copy. Pages work without this file, but for those.
"use strict";

(() => {
  const live = document.querySelector("[data-live]");
  const state = document.getElementById("live-state");
  let source = null;
  let isOver = false;

  function say(word) {
    if (!state || state.dataset.state === word) return;
    state.dataset.state = word;
    state.textContent = state.dataset[word];
  }

  function listen() {
    if (!live || isOver || source || document.hidden) return;
    source = new EventSource(location.pathname + location.search);
    source.addEventListener("live", async (event) => {
      say("on");
      // Somebody who selects text or is in a form of the block must not lose it.
      const selection = document.getSelection();
      const isSelecting = selection && !selection.isCollapsed && live.contains(selection.anchorNode);
      const isChoosing = live.querySelector(":focus:is(input, select, textarea), [data-held]");
      if (isSelecting || isChoosing) return;
      await htmx.swap({ sourceElement: live, target: live, text: event.data, swap: "innerMorph" });
    });
    source.addEventListener("failed", () => say("off"));
    source.addEventListener("ended", () => {
      isOver = true;
      hush();
      say("ended");
    });
    source.addEventListener("error", () => {
      if (source && source.readyState === EventSource.CLOSED) {
        source = null;
        say("off");
      }
    });
  }

  function hush() {
    if (source) source.close();
    source = null;
  }

  document.addEventListener("visibilitychange", () => {
    if (document.hidden) {
      hush();
      say("paused");
    } else {
      listen();
    }
  });
  // A browser has six connections to a host over HTTP/1.1: a page that is left must not keep one.
  window.addEventListener("pagehide", hush);
  window.addEventListener("pageshow", listen);
  // A search or a way back shows another list: the stream must be that list's.
  for (const name of ["htmx:after:history:push", "htmx:after:history:replace"]) {
    document.addEventListener(name, () => {
      hush();
      listen();
    });
  }
  listen();

  // On a narrow screen the navigation is wider than the page.
  const current = document.querySelector(".top nav [aria-current]");
  if (current) current.scrollIntoView({ inline: "center", block: "nearest" });

  // Somebody may have typed before htmx was there to listen. It begins with a timer of its own, which
  // is the earlier one.
  setTimeout(() => {
    const search = document.querySelector("form[hx-get] #q");
    if (search && search.value !== search.defaultValue) search.dispatchEvent(new Event("input", { bubbles: true }));
  });

  function rows() {
    return [...document.querySelectorAll("tr[data-row]")].map((row) => row.querySelector("a")).filter(Boolean);
  }

  function step(by) {
    const links = rows();
    if (!links.length) return;
    const at = links.indexOf(document.activeElement);
    const next = at < 0 ? (by > 0 ? 0 : links.length - 1) : Math.min(Math.max(at + by, 0), links.length - 1);
    links[next].focus();
  }

  let isGoing = false;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const menu = document.querySelector(".menu[open]");
    if (event.key === "Escape" && menu) {
      menu.open = false;
      menu.querySelector("summary").focus();
      return;
    }
    if (event.target.closest("input, select, textarea, dialog")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (isGoing) {
      isGoing = false;
      const goal = [...document.querySelectorAll("[data-go]")].find((one) => one.textContent === event.key);
      if (goal) location.assign(goal.dataset.go);
      return;
    }
    if (event.key === "/") {
      const search = document.getElementById("q");
      if (!search) return;
      event.preventDefault();
      search.focus();
      search.select();
    } else if (event.key === "j") step(1);
    else if (event.key === "k") step(-1);
    else if (event.key === "g") isGoing = true;
    else if (event.key === "?") document.getElementById("keys").showModal();
  });

  document.addEventListener("change", (event) => {
    const name = event.target.dataset.all;
    if (!name) return;
    for (const box of document.querySelectorAll(`input[type="checkbox"][name="${name}"]`)) {
      if (!box.disabled) box.checked = event.target.checked;
    }
  });

  document.addEventListener("click", async (event) => {
    const opener = event.target.closest("[data-open]");
    if (opener) document.getElementById(opener.dataset.open).showModal();
    const copier = event.target.closest("[data-copy]");
    if (copier) {
      const text = document.getElementById(copier.dataset.copy).textContent;
      await navigator.clipboard.writeText(text);
      const was = copier.textContent;
      copier.textContent = copier.dataset.copied;
      setTimeout(() => { copier.textContent = was; }, 1500);
    }
    const menu = document.querySelector(".menu[open]");
    if (menu && !menu.contains(event.target)) menu.open = false;
  });
})();
