"""The generators, and the commands that generate, compile and run a client of each.

A language's folder here is copied into a working directory, together with the documents, so that no
generated file enters the repository. Versions of generators and libraries are pinned in those
folders and below; to try a newer generator, change its version here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

DOCUMENTS: Final = ("broker", "controller", "namesrv", "query", "txn-checker")
_OAPI_CODEGEN: Final = "github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen@v2.8.2"
# The newest, and one from a year earlier, whose Java has other faults.
_OPENAPI_GENERATORS: Final = ("7.25.0", "7.14.0")


@dataclass(frozen=True, slots=True)
class Client:
    """A generated client: its generator, and how to build and run it.

    Commands run in a copy of the folder, whose ``documents/`` holds the documents.
    """

    name: str
    folder: str
    tools: Sequence[str]  # programs that must be on the PATH
    build: Sequence[Sequence[str]]
    run: Sequence[str]  # the broker's URL is appended


def _java(version: str) -> Client:
    libraries = ("dependency:copy-dependencies", "-DoutputDirectory=target/libraries")
    return Client(
        f"Java, openapi-generator {version}",
        "java",
        ("java", "mvn"),
        build=[("mvn", "--batch-mode", "--quiet", f"-Dgenerator={version}", "compile", *libraries)],
        run=("java", "-cp", "target/classes:target/libraries/*", "clients.RoundTrip"),
    )


_GO: Final = Client(
    "Go, oapi-codegen",
    "go",
    ("go",),
    build=[
        *(
            (
                "go",
                "run",
                _OAPI_CODEGEN,
                *("-generate", "types,client"),
                *("-package", document.replace("-", "")),
                *("-o", f"{document.replace('-', '')}/client.go"),
                f"./documents/{document}.json",
            )
            for document in DOCUMENTS
        ),
        ("go", "vet", "./..."),
        ("go", "build", "-o", "round-trip", "."),
    ],
    run=("./round-trip",),
)
_TYPESCRIPT: Final = Client(
    "TypeScript, openapi-typescript",
    "typescript/openapi-typescript",
    ("node", "npm"),
    build=[
        ("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"),
        *(
            ("npx", "openapi-typescript", f"./documents/{document}.json", "-o", f"{document}.ts")
            for document in DOCUMENTS
        ),
        ("npx", "tsc"),
    ],
    run=("node", "built/round_trip.js"),
)
_HEY_API: Final = Client(
    "TypeScript, hey-api",
    "typescript/hey-api",
    ("node", "npm"),
    build=[
        ("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"),
        *(
            ("npx", "openapi-ts", "-i", f"./documents/{document}.json", "-o", document)
            for document in DOCUMENTS
        ),
        ("npx", "tsc"),
    ],
    run=("node", "built/round_trip.js"),
)
CLIENTS: Final = (_TYPESCRIPT, _HEY_API, _GO, *map(_java, _OPENAPI_GENERATORS))
