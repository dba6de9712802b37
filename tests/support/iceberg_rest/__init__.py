"""Iceberg's reference REST catalogue in a process of its own, with its tables in a database.

Its jars come from Maven Central, once, into the cache that ``make interop`` uses.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import httpx

from eruca_deploy.ports import free_ports
from interop.toolchain import SMALL_JVM, fetched_libraries
from support.processes import clean_environment
from support.waiting import wait_until

HERE: Final = Path(__file__).parent
MISSING: Final = [name for name in ("mvn", "java", "javac") if shutil.which(name) is None]
TOKEN: Final = "a-token-that-nobody-may-see"
_HOST: Final = "127.0.0.1"
_START_SECONDS: Final = 60.0


@contextmanager
def rest_catalogue(
    directory: Path, warehouse: str, s3_url: str, vended: dict[str, str] | None = None
) -> Iterator[str]:
    """Yield the URL of a catalogue.

    Args:
        directory: For its database, and its compiled class.
        warehouse: The URI of its tables, in S3.
        s3_url: The URL of the S3 store.
        vended: Properties that it gives to clients with each table.
    """
    libraries = fetched_libraries(HERE / "pom.xml", "Apache Iceberg's REST catalogue")
    classes = directory / "classes"
    classes.mkdir()
    compiler = ["javac", "-cp", f"{libraries}/*", "-d", str(classes)]
    subprocess.run([*compiler, str(HERE / "RestCatalogue.java")], check=True)
    [port] = free_ports(_HOST, 1)
    properties = {
        "catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
        "uri": f"jdbc:sqlite:{directory}/rest.db",
        "jdbc.schema-version": "V1",
        "warehouse": warehouse,
        "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        "s3.endpoint": s3_url,
        "s3.path-style-access": "true",
        "s3.access-key-id": "catalogue",
        "s3.secret-access-key": "catalogue-secret",
        "client.region": "us-east-1",
        **{f"vended.{name}": value for name, value in (vended or {}).items()},
    }
    command = ["java", *SMALL_JVM, "-Xmx256m", "-cp", f"{classes}{os.pathsep}{libraries}/*"]
    command += ["org.apache.iceberg.rest.RestCatalogue", str(port), TOKEN]
    log = directory / "rest.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, *(f"{name}={value}" for name, value in properties.items())],
            env=clean_environment(),
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    url = f"http://{_HOST}:{port}"
    try:
        wait_until(lambda: _serves(url, process, log), within_seconds=_START_SECONDS)
        yield url
    finally:
        process.kill()
        process.wait()


def _serves(url: str, process: subprocess.Popen[bytes], log: Path) -> bool:
    assert process.poll() is None, log.read_text()
    try:
        answer = httpx.get(f"{url}/v1/config", trust_env=False)
        return answer.status_code == httpx.codes.UNAUTHORIZED
    except httpx.TransportError:
        return False
