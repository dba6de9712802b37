"""A Containerfile as its stages: what each inherits, and what it says itself.

It knows the instructions of ``deploy/images/Containerfile``, and fails at any other.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Final

_CACHE: Final = re.compile(r"--mount=type=cache,target=(\S+)\s+")
_WITHOUT_EFFECT: Final = frozenset({"SHELL", "COPY", "LABEL"})  # on what a container runs with


@dataclass(frozen=True, slots=True)
class Step:
    """A RUN of a build, and the cache that is mounted for it."""

    command: str
    cache_target: str | None


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage, with what its base says."""

    name: str
    base: str
    environment: Mapping[str, str] = field(default_factory=dict)
    user: str = "0:0"
    directory: str = "/"
    ports: tuple[int, ...] = ()
    entrypoint: tuple[str, ...] = ()
    healthcheck: tuple[str, ...] = ()
    steps: tuple[Step, ...] = ()  # its own


def stages(path: Path) -> dict[str, Stage]:
    """Return the stages of a Containerfile by their names."""
    found: dict[str, Stage] = {}
    arguments: dict[str, str] = {}
    current: Stage | None = None
    for word, rest in _instructions(path.read_text()):
        if word == "ARG":
            name, _, default = rest.partition("=")
            arguments[name] = default
        elif word == "FROM":
            base, name = re.fullmatch(r"(\S+) AS (\S+)", rest).groups()  # type: ignore[union-attr]
            for argument, value in arguments.items():
                base = base.replace(f"${{{argument}}}", value)
            known = found.get(base, Stage(name, base))
            current = found[name] = replace(known, name=name, base=base, steps=())
        else:
            assert current is not None
            current = found[current.name] = _after(current, word, rest)
    return found


def _after(stage: Stage, word: str, rest: str) -> Stage:
    match word:
        case "ENV":
            said = dict(pair.split("=", 1) for pair in shlex.split(rest))
            return replace(stage, environment={**stage.environment, **said})
        case "USER":
            return replace(stage, user=rest)
        case "WORKDIR":
            return replace(stage, directory=rest)
        case "EXPOSE":
            return replace(stage, ports=(*stage.ports, *map(int, rest.split())))
        case "ENTRYPOINT":
            return replace(stage, entrypoint=tuple(json.loads(rest)))
        case "HEALTHCHECK":
            command = rest.partition("CMD ")[2]
            return replace(stage, healthcheck=tuple(json.loads(command)) if command else ())
        case "RUN":
            cache = _CACHE.match(rest)
            target = cache.group(1) if cache else None
            return replace(stage, steps=(*stage.steps, Step(_CACHE.sub("", rest), target)))
    assert word in _WITHOUT_EFFECT, word
    return stage


def _instructions(text: str) -> Iterator[tuple[str, str]]:
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    for line in lines.replace("\\\n", " ").splitlines():
        if line.strip():
            word, rest = line.split(maxsplit=1)
            yield word, rest.strip()


def is_in_context(path: str, ignored: str) -> bool:
    """Return whether a build may see a file; *ignored* is the text of ``.dockerignore``."""
    names = [path, *map(str, PurePosixPath(path).parents)]
    seen = True
    for line in ignored.splitlines():
        pattern = line.removeprefix("!")
        if not pattern or pattern.startswith("#"):
            continue
        if any(_matches(name, pattern) for name in names):
            seen = line.startswith("!")
    return seen


def _matches(name: str, pattern: str) -> bool:
    if pattern.startswith("**/"):
        return fnmatchcase(PurePosixPath(name).name, pattern[3:])
    return name.count("/") == pattern.count("/") and name != "." and fnmatchcase(name, pattern)
