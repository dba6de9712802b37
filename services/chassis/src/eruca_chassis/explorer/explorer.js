// Chooses the service whose document Swagger UI shows.
//
// The page contains the choices as {"services": [{"name", "url"}], "note"}; an empty url is the
// service that served the page. The choice is the address's ?service=NAME, so that a page can be
// linked. A new choice reloads the page: Swagger UI stores answers by path, and would otherwise
// show answers of one service under another.
"use strict";

(() => {
  const explored = JSON.parse(document.getElementById("explored").textContent);
  const choice = document.getElementById("service");
  const wanted = new URLSearchParams(location.search).get("service");
  const found = explored.services.findIndex(({ name }) => name === wanted);
  const shown = Math.max(found, 0);
  const notes = [explored.note];
  if (wanted !== null && found < 0) {
    notes.unshift(`There is no service called ${wanted} now.`);
  }

  for (const { name, url } of explored.services) {
    choice.add(new Option(url ? `${name} · ${url}` : `${name} · ${location.origin}`, name));
  }
  choice.selectedIndex = shown;
  choice.addEventListener("change", () => {
    // Drop the fragment: it names an operation of the previous service.
    location.assign(`${location.pathname}?${new URLSearchParams({ service: choice.value })}`);
  });
  const note = notes.filter(Boolean).join(" ");
  document.getElementById("note").textContent = note;
  document.getElementById("choice").hidden = explored.services.length < 2 && !note;

  // Swagger UI's own search compares only tags, and is case-sensitive.
  const searchOperations = () => ({
    fn: {
      opsFilter: (taggedOperations, phrase) => {
        const words = phrase.toLowerCase().split(/\s+/).filter(Boolean);
        const matches = (text) => words.every((word) => text.toLowerCase().includes(word));
        const textOf = (tag, found) => [
          tag,
          found.get("path"),
          found.get("method"),
          ...["operationId", "summary"].map((name) => found.getIn(["operation", name])),
        ].join(" ");
        return taggedOperations
          .map((group, tag) => group.update("operations", (operations) => (
            operations.filter((found) => matches(textOf(tag, found)))
          )))
          .filter((group) => group.get("operations").size > 0);
      },
    },
  });

  const isDark = matchMedia("(prefers-color-scheme: dark)");
  const followSystem = () => document.documentElement.classList.toggle("dark-mode", isDark.matches);
  isDark.addEventListener("change", followSystem);
  followSystem();

  const decoded = (text) => {
    try {
      return decodeURIComponent(text);
    } catch {
      return ""; // an invalid escape
    }
  };

  // A fragment without a target would stay in the address, and in each link copied from it.
  const dropStaleFragment = () => {
    const [tag, name] = decoded(location.hash.slice(1)).split("/").filter(Boolean);
    const operations = window.explorer.specSelectors.taggedOperations().getIn([tag, "operations"]);
    const isNamed = (operation) => operation.getIn(["operation", "operationId"]) === name;
    if (location.hash && !(operations && (name === undefined || operations.some(isNamed)))) {
      history.replaceState(null, "", location.pathname + location.search);
    }
  };

  const { url } = explored.services[shown];
  window.explorer = SwaggerUIBundle({
    url: url ? `${url}/openapi.json` : "openapi.json",
    dom_id: "#explorer",
    deepLinking: true,
    displayRequestDuration: true,
    filter: true,
    plugins: [searchOperations],
    onComplete: dropStaleFragment,
    tryItOutEnabled: true,
    validatorUrl: null, // otherwise the page would request a badge from another site
  });
})();
