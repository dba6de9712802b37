"""The Helm chart, rendered: ``python tests/support/helm_chart.py`` writes it for sets of values.

Helm is not needed to test what is kept in ``tests/contract/helm``. It is needed to write it, and
to compare it with the chart where Helm is installed::

    go install helm.sh/helm/v3/cmd/helm@v3.18.6

Each file begins with the digest of the chart it was rendered from.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).parents[2]
CHART: Final = ROOT / "deploy" / "helm" / "eruca"
KEPT: Final = ROOT / "tests" / "contract" / "helm"
SETS: Final = tuple(sorted(path.stem for path in (CHART / "values").glob("*.yaml")))
NAMESPACE: Final = "messaging"
RULES: Final = """[roles]
administrator = ["user:ann"]
broker = ["service:broker"]
"""


def helm() -> str | None:
    """Return the path of the program; None: it is not installed."""
    return shutil.which("helm") or shutil.which("helm", path=str(Path.home() / "go" / "bin"))


def rendered(name: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Render the chart with a set of values; nothing is asked of a Kubernetes cluster."""
    program = helm()
    assert program is not None
    return subprocess.run(
        [
            *(program, "template", "mq", CHART, "--namespace", NAMESPACE),
            *("--kube-version", "1.33.0", "--values", CHART / "values" / f"{name}.yaml"),
            *(() if name == "small" else ("--set-string", f"auth.rules={RULES}")),
            *options,
        ],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "HELM_PLUGINS": "/nonexistent"},
    )


def kept(name: str) -> list[dict[str, Any]]:
    """Return the manifests that are kept for a set of values."""
    return [part for part in yaml.safe_load_all((KEPT / f"{name}.yaml").read_text()) if part]


def of_kind(manifests: list[dict[str, Any]], kind: str) -> Iterator[dict[str, Any]]:
    """Yield the manifests of a kind."""
    return (manifest for manifest in manifests if manifest["kind"] == kind)


def digest_line() -> str:
    """Return the first line of a kept file: the digest of all files of the chart."""
    digest = hashlib.sha256()
    for path in sorted(CHART.rglob("*")):
        if path.is_file():
            digest.update(f"{path.relative_to(CHART)}\0".encode() + path.read_bytes())
    return f"# Rendered by tests/support/helm_chart.py from the chart {digest.hexdigest()[:16]}\n"


def pods(stateful_set: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield each pod's name and environment, as Kubernetes would make them."""
    spec = stateful_set["spec"]
    first = spec.get("ordinals", {}).get("start", 0)
    [container] = spec["template"]["spec"]["containers"]
    for ordinal in range(first, first + spec["replicas"]):
        name = f"{stateful_set['metadata']['name']}-{ordinal}"
        fields = {
            "metadata.name": name,
            "metadata.labels['apps.kubernetes.io/pod-index']": str(ordinal),
        }
        environment: dict[str, str] = {}
        for variable in container["env"]:
            source = variable.get("valueFrom", {})
            if "secretKeyRef" in source:
                environment[variable["name"]] = "postgresql://eruca:secret@postgres/eruca"
            elif "fieldRef" in source:
                environment[variable["name"]] = fields[source["fieldRef"]["fieldPath"]]
            else:
                value = str(variable["value"])
                for known, text in environment.items():
                    value = value.replace(f"$({known})", text)
                environment[variable["name"]] = value
        yield name, environment


def _write() -> None:
    KEPT.mkdir(exist_ok=True)
    for name in SETS:
        result = rendered(name)
        assert result.returncode == 0, result.stderr
        (KEPT / f"{name}.yaml").write_text(digest_line() + result.stdout)


if __name__ == "__main__":
    _write()
