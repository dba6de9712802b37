"""The plug-in, as pytest loads it: the documents' examples, run as somebody else's tests."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.documents import GUIDE, examples

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[3]
EXAMPLE = re.compile(r"```python\n(.*?)```", re.DOTALL)
README = (ROOT / "testing" / "README.md").read_text()
FIRST, SETTINGS, CLUSTER, OPTIONS, KEYS = EXAMPLE.findall(README)
[GLIMPSE] = examples(GUIDE / "testing.md")


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return pytester.runpytest_subprocess("-W", "error", "-p", "no:cacheprovider", *arguments)


def test_the_examples_with_a_broker_in_memory_pass(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_first=FIRST, test_settings=SETTINGS, test_glimpse=GLIMPSE.text)

    run(pytester).assert_outcomes(passed=5)


@pytest.mark.parametrize("options", ["", OPTIONS], ids=["as it is", "otherwise"])
def test_the_example_with_a_cluster_passes(pytester: pytest.Pytester, options: str) -> None:
    pytester.makepyfile(conftest=options, test_example=CLUSTER)

    run(pytester).assert_outcomes(passed=1)


def test_the_example_with_keys_passes(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(KEYS)

    run(pytester).assert_outcomes(passed=1)


def test_a_run_that_wants_none_of_it_loads_none_of_it(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys

        def test_nothing_is_loaded(request):
            assert request.config.pluginmanager.has_plugin("eruca")
            heavy = {"eruca_broker", "eruca_chassis", "eruca_deploy", "fastapi", "httpx"}
            assert not heavy & set(sys.modules)
        """
    )

    run(pytester, "-p", "no:schemathesis", "-p", "no:anyio").assert_outcomes(passed=1)


def test_the_fixtures_are_listed_with_what_they_are(pytester: pytest.Pytester) -> None:
    listed = run(pytester, "--fixtures").stdout.str()

    for name in ("broker", "broker_settings", "client", "cluster", "cluster_options"):
        assert re.search(rf"^eruca_{name}( \[session scope\])? -- .*\n    \w", listed, re.MULTILINE)
