"""The compiler of the broker's library, and the processors it compiles for."""

from __future__ import annotations

import shutil
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

BROKER = Path(__file__).parents[3] / "services/broker"
INTERFACE = "hatchling.builders.hooks.plugin.interface"
ZIG = """
import subprocess, sys
arguments = [each for each in sys.argv[2:] if not each.startswith("-mcpu=")]
subprocess.run(["cc", *arguments], check=True)
print(*sys.argv[1:], file=open(__file__ + ".called", "w"))
"""

needs_cc = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a system's compiler")


class Hook:
    """The part of the build's own base class that matters here."""

    def __init__(self, root: Path) -> None:
        self.root = str(root)


@pytest.fixture
def build(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The build's module; what it derives from is there only while a wheel is built."""
    interface = ModuleType(INTERFACE)
    interface.BuildHookInterface = Hook  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, INTERFACE, interface)
    spec = spec_from_file_location("hatch_build", BROKER / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@needs_cc
@pytest.mark.parametrize("named", ["", " "])
def test_without_a_name_it_is_the_system_s(
    build: ModuleType, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    monkeypatch.setenv("CC", named)

    assert build._system_compiler() == ["cc"]
    assert build.NativeLibrary(BROKER).dependencies() == []


@needs_cc
def test_a_name_may_have_arguments_and_blanks(
    build: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    compiler = tmp_path / "a compiler"
    compiler.symlink_to(str(shutil.which("cc")))
    monkeypatch.setenv("CC", f"'{compiler}' -O1")

    assert build._system_compiler() == [str(compiler), "-O1"]


@pytest.mark.parametrize("content", ["no program\n", "#!/bin/sh\nexit 0\n", "#!/bin/sh\nexit 1\n"])
def test_where_the_one_that_is_named_does_not_compile_it_is_zig_s(
    build: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: str
) -> None:
    named = tmp_path / "named"
    named.write_text(content)
    named.chmod(0o755)
    monkeypatch.setenv("CC", str(named))

    assert build.NativeLibrary(BROKER).dependencies() == [build.ZIG]


@needs_cc
def test_zig_compiles_for_any_processor_of_its_kind(
    build: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    package = tmp_path / "ziglang"
    package.mkdir()
    (package / "__main__.py").write_text(ZIG)
    monkeypatch.setenv("CC", "missing")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    data: dict[str, Any] = {}
    hook = build.NativeLibrary(BROKER)

    hook.initialize("standard", data)

    ((library, name),) = data["force_include"].items()
    assert Path(library).stat().st_size > 0
    assert name == "_eruca_broker.so"
    assert "-mcpu=baseline" in (package / "__main__.py.called").read_text().split()
    hook.finalize("standard", data, "")
    assert not Path(library).exists()
