"""The site's pages, gathered from where they stand in the repository.

A page's address within MkDocs is its path in the repository, so a relative link between two pages
works in both. Nothing is copied: MkDocs reads each file where it is. Where the page comes to stand
in the site is another matter: see :func:`address`.

Links to source files lead to pages that show them. They are made here, and so are the lists of
operations in the pages about the services' OpenAPI documents.
"""

from __future__ import annotations

import html
import importlib.resources
import json
import logging
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.nav import Navigation
from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = (
    "*.md",
    "docs/guide/*.md",
    "docs/reference/**/*.md",
    "docs/runbook.md",
    "docs/zh/**/*.md",
    "bench/*.md",
    "clients/README.md",
    "deploy/tls/README.md",
    "interop/README.md",
    "sdk/README.md",
    "spark/README.md",
    "spark/JOBS.md",
    "spark/src/*/*/DESIGN.md",
    "spark/src/pyspark_eruca_segments/DESIGN.md",
    "testing/README.md",
    "services/query/EXPORTS.md",
    "services/*/src/*/DESIGN.md",
    "services/broker/src/eruca_broker/store/tier/DESIGN.md",
    "sdk/src/*/*/DESIGN.md",
    "sdk/src/*/*/*/DESIGN.md",
    "tests/SCENARIOS.md",
    "tests/chaos/README.md",
)
ASSETS: Final = ("docs/assets/*", "tests/contract/openapi/*.json")
OPENAPI: Final = ROOT / "tests" / "contract" / "openapi"
WEIGHTS: Final = {
    "docs/guide/": 2.0,
    "tests/": 0.2,
    "CHANGELOG.md": 0.3,
    "bench/": 0.5,
}  # in search
_LINK: Final = re.compile(r"(\]\()([^)\s#:]+)((?:#[^)\s]*)?\))")
_OPERATIONS: Final = re.compile(r"<!-- operations: ([a-z-]+) -->")
_LANGUAGES: Final = {
    "": "text",  # a Caddyfile
    ".cfg": "text",
    ".conf": "nginx",
    ".go": "go",
    ".java": "java",
    ".py": "python",
    ".ts": "typescript",
    ".yml": "yaml",
}


def on_config(config: MkDocsConfig) -> None:
    """Keep jieba, which divides Chinese for the search, from reporting that it loads its words."""
    logging.getLogger("jieba").setLevel(logging.WARNING)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the repository's pages, the files they show, and the pages of linked sources."""
    pages = sorted({path for pattern in PAGES for path in ROOT.glob(pattern)})
    for path in (*pages, *(path for pattern in ASSETS for path in sorted(ROOT.glob(pattern)))):
        files.append(_read(config, name_of(path), path))
    for path in sorted({source for page in pages for source in linked_sources(page)}):
        language = _LANGUAGES[path.suffix]
        content = f"# {path.name}\n\n`{name_of(path)}`\n\n````{language}\n{path.read_text()}````\n"
        files.append(_made(config, f"{name_of(path)}.md", content))
    swagger = Path(str(importlib.resources.files("fastapi_offline"))) / "static"
    for name in ("swagger-ui-bundle.js", "swagger-ui.css"):
        files.append(_read(config, f"openapi/{name}", swagger / name))
    for path in sorted(OPENAPI.glob("*.json")):
        script = f"window.erucaOpenApi = {path.read_text()};\n"
        files.append(_made(config, f"openapi/{path.stem}.js", script))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links to source files to their pages, and list a service's operations.

    What themes read at the head of a page stands here: the repository would show it as a table.
    """
    source = page.file.src_uri
    if source in ("README.md", "docs/zh/README.md"):
        page.meta["hide"] = ["navigation"]
    for start, boost in WEIGHTS.items():
        if source.startswith(start):
            page.meta["search"] = {"boost": boost}

    def shown(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), link[2]))
        has_page = files.get_file_from_path(f"{target}.md") is not None
        return f"{link[1]}{link[2]}.md{link[3]}" if has_page else link[0]

    if found := _OPERATIONS.search(markdown):
        markdown = markdown.replace(found[0], operations(found[1]))
    return _LINK.sub(shown, markdown)


def on_page_context(
    context: dict[str, Any], page: Page, config: MkDocsConfig, nav: Navigation
) -> dict[str, Any]:
    """Have the theme speak the page's language."""
    config.theme["language"] = "zh" if page.file.src_uri.startswith("docs/zh/") else "en"
    return context


def address(source: str) -> str:
    """Return where in the site a file of the repository stands."""
    path, extension = posixpath.splitext(source)
    if extension == ".md":
        folder, name = posixpath.split(re.sub(r"/src/eruca_\w+/DESIGN$", "/DESIGN", path))
        name = "index" if name == "README" else name.lower() if name.isupper() else name
        path, extension = posixpath.join(folder, name), ".html"
    return f"{path.removeprefix('docs/')}{extension}"


def linked_sources(page: Path) -> Iterator[Path]:
    """Yield the source files that a page of the repository links to."""
    for _, target, _ in _LINK.findall(page.read_text()):
        path = (page.parent / target).resolve()
        if path.suffix in _LANGUAGES and path.is_relative_to(ROOT) and path.is_file():
            yield path


def operations(service: str) -> str:
    """Return a list of a service's operations, for the search, and all of its document."""
    document = json.loads((OPENAPI / f"{service}.json").read_text())
    rows = "".join(
        f"<tr><td><code>{method.upper()}</code></td><td><code>{html.escape(path)}</code></td>"
        f"<td>{html.escape(operation['summary'])}</td></tr>\n"
        for path, item in document["paths"].items()
        for method, operation in item.items()
        if method in {"get", "put", "post", "patch", "delete"}
    )
    scripts = "".join(
        f'<script src="../../openapi/{name}"></script>\n'
        for name in ("swagger-ui-bundle.js", f"{service}.js")
    )
    return (
        "<table>\n<thead><tr><th>Method</th><th>Path</th><th>Operation</th></tr></thead>\n"
        f"<tbody>\n{rows}</tbody>\n</table>\n\n"
        '## The whole document\n\n<link rel="stylesheet" href="../../openapi/swagger-ui.css">\n'
        f'<div id="swagger-ui" data-search-exclude></div>\n{scripts}'
        '<script src="../../openapi.js"></script>\n'
    )


def name_of(path: Path) -> str:
    """Return a file's path in the repository."""
    return path.relative_to(ROOT).as_posix()


def _read(config: MkDocsConfig, source: str, path: Path) -> File:
    """Return a file of the site that MkDocs reads at *path*."""
    return _placed(File.generated(config, source, abs_src_path=str(path)))


def _made(config: MkDocsConfig, source: str, content: str) -> File:
    """Return a file of the site that is made here; as a page it is only linked to."""
    outside = InclusionLevel.NOT_IN_NAV
    return _placed(File.generated(config, source, content=content, inclusion=outside))


def _placed(file: File) -> File:
    file.dest_uri = address(file.src_uri)
    return file
