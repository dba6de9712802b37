// Chooses which service's document Swagger UI shows.
//
// What there is to choose from stands in the page, as {"services": [{"name", "url"}], "note"}; an
// empty url is the service that served the page. The choice is the address's ?service=NAME, so that
// a page can be linked to, and choosing loads the page anew: Swagger UI keeps answers by path, and
// would otherwise show those of one service under another.
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
    location.search = new URLSearchParams({ service: choice.value });
  });
  const note = notes.filter(Boolean).join(" ");
  document.getElementById("note").textContent = note;
  document.getElementById("choice").hidden = explored.services.length < 2 && !note;

  const { url } = explored.services[shown];
  window.explorer = SwaggerUIBundle({
    url: url ? `${url}/openapi.json` : "openapi.json",
    dom_id: "#explorer",
    deepLinking: true,
    displayRequestDuration: true,
    filter: true,
    tryItOutEnabled: true,
    validatorUrl: null, // or the page would ask a site elsewhere for a badge
  });
})();
