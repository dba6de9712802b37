"""Build all distributions into ``build/dist``: wheels, sdists, the list of parts, the licences.

``python deploy/tools/dist.py [DIRECTORY]``. Steps, of which each ends the build if it fails:

1. every member's version is the workspace's;
2. uv builds a wheel and an sdist of each member;
3. the broker's wheel gets the ``manylinux`` tag that its library allows (``auditwheel``); the
   library needs libc alone and no Python, so one wheel serves every Python;
4. an index would accept them all (``twine check --strict``);
5. ``eruca.cdx.json`` is the list of parts in CycloneDX's form, ``LICENCES.md`` their licences. A
   part with a licence that is not allowed ends the build.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import licences
import version

BIN: Final = Path(sys.executable).parent
DEFAULT: Final = version.ROOT / "build" / "dist"


def main() -> int:
    """Build; return the exit code."""
    directory = Path(sys.argv[1]).absolute() if sys.argv[1:] else DEFAULT
    _run(sys.executable, version.__file__, "--check")
    shutil.rmtree(directory, ignore_errors=True)
    _run(BIN / "uv", "build", "--quiet", "--all-packages", "--out-dir", directory)
    (directory / ".gitignore").unlink(missing_ok=True)
    _tag_native(directory)
    _run(BIN / "twine", "--no-color", "check", "--strict", *_distributions(directory), quiet=True)
    document = licences.bill_of_materials()
    parts = licences.parts(document)
    faults = [part.fault for part in parts if part.fault]
    if faults:
        print(*faults, sep="\n", file=sys.stderr)
        return 1
    (directory / "eruca.cdx.json").write_text(json.dumps(document, indent=1) + "\n")
    (directory / "LICENCES.md").write_text(licences.table(parts))
    count = len(_distributions(directory))
    print(f"{directory}: {count} distributions, {len(parts)} parts with allowed licences")
    return 0


def _distributions(directory: Path) -> list[Path]:
    return sorted([*directory.glob("*.whl"), *directory.glob("*.tar.gz")])


def _tag_native(directory: Path) -> None:
    """Replace the broker's wheel by one with the tag of the oldest libc that it works with."""
    for wheel in directory.glob("*-linux_*.whl"):
        _run(BIN / "auditwheel", "repair", "--wheel-dir", directory, wheel, quiet=True)
        wheel.unlink()


def _run(*command: str | Path, quiet: bool = False) -> None:
    """Run a command, which finds the programs of this environment; end the build if it fails."""
    done = subprocess.run(
        command,
        cwd=version.ROOT,
        env={**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}"},
        stdout=subprocess.PIPE if quiet else None,
        stderr=subprocess.STDOUT if quiet else None,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.stderr.write(done.stdout or "")
        raise SystemExit(f"{' '.join(map(str, command[:3]))} … failed with {done.returncode}")


if __name__ == "__main__":
    sys.exit(main())
