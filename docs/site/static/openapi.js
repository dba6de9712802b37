// Shows a service's OpenAPI document, which a script beside this one has put into the page, so that
// the page needs no server. Colours follow those of the site.
"use strict";

(() => {
  SwaggerUIBundle({
    spec: window.erucaOpenApi,
    dom_id: "#swagger-ui",
    deepLinking: true,
    docExpansion: "none",
    filter: true,
    supportedSubmitMethods: [], // a page of a site has no service to call
    tagsSorter: "alpha",
  });

  const followScheme = () => {
    const isDark = document.body.dataset.mdColorScheme === "slate";
    document.documentElement.classList.toggle("dark-mode", isDark);
  };
  new MutationObserver(followScheme).observe(document.body, {
    attributeFilter: ["data-md-color-scheme"],
  });
  followScheme();
})();
