"""Pages of reports: complete by themselves, in both languages, and without foreign markup."""

from __future__ import annotations

import ast
import json
import re
import string
from html.parser import HTMLParser
from pathlib import Path

import pytest

import eruca_spark
from eruca_spark.reports.chart import thinned
from eruca_spark.reports.chinese import CHINESE
from eruca_spark.reports.shown_command import shown_command
from eruca_spark.reports.targets import TargetError, Targets, targets_of
from support.report_pages import ATTACK, at, hot_keys_page

PACKAGE = Path(eruca_spark.__file__).parent


class Parsed(HTMLParser):
    """The elements of a page, and the texts of its scripts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.cells: list[str] = []
        self._within = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._within = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._within = ""

    def handle_data(self, data: str) -> None:
        if self._within == "script":
            self.scripts[-1] += data
        elif self._within in ("td", "th"):
            self.cells.append(data.strip())


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_page_loads_nothing_and_allows_its_own_scripts_only(language: str) -> None:
    parsed = Parsed(hot_keys_page("zh" if language == "zh" else "en"))

    links = [
        value
        for _, attributes in parsed.tags
        for name, value in attributes.items()
        if name in ("src", "href", "action", "srcset", "data")
    ]
    assert links == ["#main"]
    assert not [name for _, attributes in parsed.tags for name in attributes if name[:2] == "on"]
    assert not [attributes for _, attributes in parsed.tags if "style" in attributes]
    [policy] = [a["content"] for _, a in parsed.tags if "http-equiv" in a]
    assert policy is not None
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    style = (PACKAGE / "reports" / "page" / "page.css").read_text()
    assert not re.search(r"url\(|@import", style)


def test_texts_of_messages_are_text() -> None:
    page = hot_keys_page("en")
    parsed = Parsed(page)

    assert "<script>alert" not in page
    assert ATTACK in parsed.cells
    data = [script for script in parsed.scripts if script.startswith("{")]
    assert len(data) == 3  # one chart has none
    assert any(ATTACK in label for label in json.loads(data[0])["params"][0]["value"])


def test_a_page_says_its_finding_its_basis_and_its_command_in_words() -> None:
    english, chinese = hot_keys_page("en"), hot_keys_page("zh")

    assert "One key is hot: " in english
    assert '<html lang="en">' in english
    assert "The input may be incomplete: see below." in english
    assert "2 messages are damaged." in english
    assert "eruca-spark hot-keys --topic orders" in english
    assert "http://query:10931" in english
    assert "Made at 2026-11-21 08:00:00Z by eruca-spark 0.1.0." in english
    assert '<html lang="zh-Hans">' in chinese
    assert "有 1 个热点 Key：" in chinese  # noqa: RUF001
    assert "生成报告的命令" in chinese


def texts() -> set[str]:
    """Return every text that is marked for translation."""
    marked = {
        node.args[0].value
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "N_"
        and isinstance(node.args[0], ast.Constant)
        and isinstance(node.args[0].value, str)
    }
    template = (PACKAGE / "reports" / "page" / "page.html").read_text()
    return marked | set(re.findall(r'_\("([^"]+)"\)', template))


def test_every_text_has_a_translation_with_its_fields() -> None:
    found = texts()

    assert len(found) > 80
    assert found - CHINESE.keys() == set()
    assert {text for text, other in CHINESE.items() if fields(text) != fields(other)} == set()


def fields(text: str) -> set[tuple[str, str]]:
    return {(name, form or "") for _, name, form, _ in string.Formatter().parse(text) if name}


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["audit", "--topic", "a b"], "eruca-spark audit --topic 'a b'"),
        (["audit", "--url", "http://ann:pw@q:1/x"], "eruca-spark audit --url 'http://***@q:1/x'"),
        (["--url=https://q/?token=abc&x=1"], "eruca-spark '--url=https://q/?token=***&x=1'"),
        (["--conf", "spark.a.secret.key=abc"], "eruca-spark --conf 'spark.a.secret.key=***'"),
        (["--conf=spark.my.password=a=b"], "eruca-spark '--conf=spark.my.password=***'"),
        (["--option", "apiKeyFile=/etc/key"], "eruca-spark --option apiKeyFile=/etc/key"),
        (["--lake", "s3a://KEY:SECRET@b/lake"], "eruca-spark --lake 's3a://***@b/lake'"),
        (["--conf", "spark.cores.max=2"], "eruca-spark --conf spark.cores.max=2"),
    ],
)
def test_the_command_is_shown_without_secrets(arguments: list[str], shown: str) -> None:
    assert shown_command(arguments) == shown


def test_a_path_says_what_is_written(tmp_path: Path) -> None:
    page, picture, folder = tmp_path / "a.html", tmp_path / "a.PNG", tmp_path / "v1.0"
    (tmp_path / "dir.html").mkdir()
    (tmp_path / "file").touch()

    assert targets_of(page, "audit") == Targets(page=page)
    assert targets_of(picture, "audit") == Targets(picture=picture)
    assert targets_of(folder, "audit") == Targets(
        folder, folder / "audit.png", folder / "audit.html"
    )
    assert targets_of(tmp_path / "dir.html", "audit").directory == tmp_path / "dir.html"
    assert targets_of(page, "audit").parent == tmp_path
    with pytest.raises(TargetError, match="is a file; give a directory, or a file that ends in"):
        targets_of(tmp_path / "file", "audit")
    with pytest.raises(TargetError, match=r"reports are not written as \.pdf"):
        targets_of(tmp_path / "a.pdf", "audit")


def test_a_thinned_line_keeps_its_peak() -> None:
    times = [at(second) for second in range(1_000)]
    values = [9.0 if second == 777 else 1.0 for second in range(1_000)]

    few, kept = thinned(times, values, 10)

    assert len(few) == len(kept) == 10
    assert (few[7], kept[7]) == (at(777), 9.0)
    assert thinned(times[:3], values[:3], 10) == (times[:3], values[:3])
    assert thinned([], []) == ([], [])
