"""Hadoop's file system for S3, which Spark lacks; from Maven Central, once."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from interop.toolchain import fetched_libraries

MISSING: Final = [name for name in ("mvn", "java") if shutil.which(name) is None]


def s3_settings(s3_url: str) -> dict[str, str]:
    """Return the settings with which Spark writes to the S3 store at a URL."""
    jars = fetched_libraries(Path(__file__).with_name("pom.xml"), "Hadoop's file system for S3")
    return {
        "spark.jars": ",".join(str(jar) for jar in sorted(jars.glob("*.jar"))),
        "spark.hadoop.fs.s3a.endpoint": s3_url,
        "spark.hadoop.fs.s3a.path.style.access": "true",
    }
