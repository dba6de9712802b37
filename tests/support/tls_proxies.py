"""The proxies of ``deploy/tls`` in tests: their snippets with other paths and ports."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from support.authority import Pair

SNIPPETS: Final = Path(__file__).parents[2] / "deploy" / "tls"


@dataclass(frozen=True)
class Proxy:
    """A program that terminates TLS."""

    program: str
    snippet: str
    peer: str
    command: Callable[[Path, Path], list[str]]  # from the configuration, and a folder


def _nginx(config: Path, folder: Path) -> list[str]:
    main = folder / "main.conf"
    temporary = " ".join(
        f"{kind}_temp_path {folder}/{kind};"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    log = f"access_log off; error_log {folder}/error.log;"
    main.write_text(
        f"pid {folder}/nginx.pid; daemon off; user root; events {{ }}\n"
        f"http {{ {temporary} {log} include {config}; }}\n"
    )
    return ["nginx", "-c", str(main), "-e", f"{folder}/error.log"]


PROXIES: Final = [
    Proxy("nginx", "nginx.conf", "forwarded", _nginx),
    Proxy("haproxy", "haproxy.cfg", "proxy_protocol", lambda c, _: ["haproxy", "-f", str(c)]),
    Proxy(
        "caddy",
        "Caddyfile",
        "forwarded",
        lambda c, _: ["caddy", "run", "--adapter", "caddyfile", "--config", str(c)],
    ),
]


def moved(snippet: str, folder: Path, pair: Pair, broker_port: int, query_port: int) -> str:
    """Return a snippet with the paths and ports of a test."""
    (folder / "server.pem.key").write_bytes(pair.key.read_bytes())
    text = (SNIPPETS / snippet).read_text()
    for old, new in (
        ("/run/eruca/", f"{folder}/"),
        ("/etc/eruca/", f"{folder}/"),
        ("10911", str(broker_port)),
        ("10931", str(query_port)),
    ):
        assert old in text
        text = text.replace(old, new)
    return text


def with_certificates(text: str) -> str:
    """Return a moved snippet that asks for client certificates, as its comments say."""
    text = re.sub(r"^ *bind .*\n(?= *#bind)", "", text, flags=re.MULTILINE)
    changed = re.sub(r"^(\s*)#(?! )", r"\1", text, flags=re.MULTILINE)
    assert changed != text
    return changed
