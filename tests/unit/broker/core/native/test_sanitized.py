"""Run the C code's tests with a library that ends the process at an access outside its memory.

The tests of all callers run once more over such a library, in their own process. Every buffer in it
is allocated separately, with forbidden bytes before and after it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[5]
SOURCES = ROOT / "services/broker/src/eruca_broker/core/native"
WARNINGS = ("-Wall", "-Wextra", "-Wconversion", "-pedantic", "-Werror")
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
CALLERS = (
    "tests/unit/broker/core/batches",
    "tests/unit/broker/core/index",
    "tests/unit/broker/core/log/test_copied_run.py",
    "tests/unit/broker/core/records/test_stored_proof.py"
    "::test_what_is_compiled_says_what_python_says",
    "tests/unit/broker/core/records/test_stored_proof.py"
    "::test_a_run_is_taken_if_each_of_its_records_is_proved",
    "tests/unit/broker/core/records/test_stored_proof.py"
    "::test_records_that_do_not_lie_back_to_back_are_no_run",
    "tests/unit/broker/core/test_record_columns.py",
    "tests/store/test_dispatcher.py",
    "tests/store/test_key_index.py",
    "tests/store/test_key_index_damage.py",
    "tests/store/test_key_index_flushes.py",
    "tests/store/test_key_index_queries.py",
    "tests/store/test_reader.py",
)
LIE = """
from eruca_broker.core.native.library import address_of, read_records
from eruca_broker.core.properties.found import FoundProperties
raw = bytearray(100)
raw[:4] = (200).to_bytes(4, "big")
found = FoundProperties(1)
read_records(address_of(raw), 1, 88, 0, found.at)
"""

gcc = shutil.which("gcc")
needs_gcc = pytest.mark.skipif(gcc is None, reason="needs gcc, for its sanitizers")


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Of a process that finds the sanitized library before the other."""
    assert gcc is not None
    runtime = subprocess.run(
        [gcc, "-print-file-name=libasan.so"], check=True, capture_output=True, text=True, timeout=60
    ).stdout.strip()
    if not Path(runtime).is_absolute():  # the bare name: it has found none
        pytest.skip("gcc came without its sanitizers")
    directory = tmp_path_factory.mktemp("native")
    library = directory / "_eruca_broker.so"
    flags = ("-std=c11", "-O1", "-g", "-fPIC", "-shared", "-fvisibility=hidden")
    sources = map(str, sorted(SOURCES.glob("*.c")))
    subprocess.run(
        [gcc, *flags, *WARNINGS, *SANITIZERS, "-o", str(library), *sources], check=True, timeout=120
    )
    return os.environ | {
        "LD_PRELOAD": runtime,
        "ASAN_OPTIONS": "detect_leaks=0",  # Python keeps what it has until its end
        "PYTHONMALLOC": "malloc",  # each object by itself
        "PYTHONPATH": str(directory),
        "PYTEST_ADDOPTS": "",
    }


@needs_gcc
@pytest.mark.timeout(400)
def test_it_stays_within_its_memory(environment: dict[str, str]) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *CALLERS],
        cwd=ROOT,
        check=False,
        env=environment,
        capture_output=True,
        text=True,
        timeout=380,
    )

    assert ran.returncode == 0, ran.stdout + ran.stderr


@needs_gcc
def test_where_it_did_not_the_process_would_end(environment: dict[str, str]) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", LIE],
        check=False,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert ran.returncode != 0
    assert "AddressSanitizer: heap-buffer-overflow" in ran.stderr
