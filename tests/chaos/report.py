"""The report of a run: a text for the terminal, and a page with the availability over time."""

from __future__ import annotations

import html
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

from chaos.checkers.facts import Anomaly
from chaos.history import History

SHOWN_MAX: Final = 5  # anomalies of one checker that the text lists
_WIDTH: Final = 1_000
_ROW: Final = 90
_COLORS: Final = {"ok": "#2e8b57", "fail": "#e0a030", "info": "#c03030"}

Verdicts = Mapping[str, Sequence[Anomaly]]


def text_of(history: History, verdicts: Verdicts) -> str:
    """Return the report for a terminal."""
    return "\n".join(_lines(history, verdicts))


def _lines(history: History, verdicts: Verdicts) -> Iterator[str]:
    names = (
        "seed",
        "seconds",
        "flush_mode",
        "arbiter",
        "retention_seconds",
        "replicas",
        "min_in_sync",
        "mutation",
    )
    yield "  ".join(f"{name} {history.setting(name)}" for name in names if history.setting(name))
    yield ""
    yield f"{'operation':<16}{'ok':>8}{'fail':>8}{'info':>8}"
    for op, counts in sorted(counts_of(history).items()):
        yield f"{op:<16}{counts['ok']:>8}{counts['fail']:>8}{counts['info']:>8}"
    yield ""
    yield f"{'group':<12}{'epochs':>8}{'longest pause of sends':>26}"
    for broker in history.setting("brokers", []):
        pause = f"{pause_of(history, broker):.1f} s"
        yield f"{broker:<12}{len(epochs_of(history, broker)):>8}{pause:>26}"
    yield ""
    for name, count in sorted(nemeses_of(history).items()):
        yield f"{count:>4} times {name}"
    if flipped := len(list(history.noted("flipped"))):
        right = sum(note.value["is_equal"] for note in history.noted("compared"))
        cut = len(list(history.noted("damage-cut")))
        yield f"{flipped} bits flipped, {right} repaired; {cut} logs truncated at damage"
    yield ""
    for checker, found in verdicts.items():
        yield f"{checker:<22}{f'{len(found)} ANOMALIES' if found else 'ok'}"
        yield from (f"    {one.at:9.3f}  {one.text}" for one in found[:SHOWN_MAX])
        if len(found) > SHOWN_MAX:
            yield f"    … and {len(found) - SHOWN_MAX} more"


def counts_of(history: History) -> dict[str, Counter[str]]:
    """Return how often each operation ended how."""
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for one in history.operations:
        counts[one.op][one.outcome] += 1
    return counts


def epochs_of(history: History, broker: str) -> list[int]:
    """Return the epochs of a group that its row had."""
    rows = [one for one in history.named("row") if one.is_ok and one.asked["broker"] == broker]
    return sorted({int(one.told["epoch"]) for one in rows})


def pause_of(history: History, broker: str) -> float:
    """Return the longest time in which no send of a group succeeded, until the load's end."""
    end = next((note.at for note in history.noted("end")), 0.0)
    times = sorted(
        one.ended_at
        for one in history.named("send")
        if one.is_ok and one.asked["queue"][0] == broker
    )
    points = [*times, *([end] if end else [])]
    return max((b - a for a, b in pairwise(points)), default=0.0)


def nemeses_of(history: History) -> Counter[str]:
    """Return how often each fault began."""
    begun = (note.value for note in history.noted("nemesis") if note.value["phase"] == "begin")
    return Counter(str(value["name"]) for value in begun)


def page_of(history: History, verdicts: Verdicts) -> str:
    """Return the report as a page of HTML that needs nothing else."""
    end = max((one.begun_at for one in history.operations), default=1.0)
    plots = "".join(_plot(history, broker, end) for broker in history.setting("brokers", []))
    text = html.escape(text_of(history, verdicts))
    return (
        "<!doctype html><meta charset=utf-8><title>Chaos</title>"
        "<style>body{font-family:sans-serif;margin:2em}pre{line-height:1.3}</style>"
        f"<h1>Chaos, seed {history.setting('seed')}</h1>"
        "<p>Sends of each second by outcome: done, refused, unknown. Grey: faults. "
        f"Lines: new epochs.</p>{plots}<pre>{text}</pre>\n"
    )


def _plot(history: History, broker: str, end: float) -> str:
    """Return the sends of a group over time as SVG."""
    counts: defaultdict[int, Counter[str]] = defaultdict(Counter)
    for one in history.named("send"):
        if one.asked["queue"][0] == broker:
            counts[int(one.begun_at)][one.outcome] += 1
    scale = _WIDTH / end
    most = max((sum(second.values()) for second in counts.values()), default=1)
    parts = [
        f'<rect x="{start * scale:.1f}" y="0" width="{(stop - start) * scale:.1f}" '
        f'height="{_ROW}" fill="#ddd"><title>{html.escape(what)}</title></rect>'
        for start, stop, what in _faults(history, end)
    ]
    for second, outcomes in counts.items():
        top = float(_ROW)
        for outcome, color in _COLORS.items():
            height = outcomes[outcome] / most * _ROW
            top -= height
            parts.append(
                f'<rect x="{second * scale:.1f}" y="{top:.1f}" width="{max(scale, 0.5):.1f}" '
                f'height="{height:.1f}" fill="{color}"/>'
            )
    known = set[int]()
    for row in history.named("row"):
        epoch = int(row.told["epoch"]) if row.is_ok else 0
        if row.asked["broker"] == broker and epoch and epoch not in known:
            known.add(epoch)
            x = row.ended_at * scale
            parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{_ROW}" stroke="#36c"/>')
    return (
        f"<h2>{html.escape(broker)}, at most {most}/s</h2>"
        f'<svg width="{_WIDTH}" height="{_ROW}" xmlns="http://www.w3.org/2000/svg">'
        f"{''.join(parts)}</svg>"
    )


def _faults(history: History, end: float) -> Iterator[tuple[float, float, str]]:
    """Yield the faults: begin, end, and text."""
    begun: dict[str, tuple[float, str]] = {}
    for note in history.noted("nemesis"):
        name = note.value["name"]
        if note.value["phase"] == "begin":
            begun[name] = note.at, f"{name}: {note.value['what']}"
        elif name in begun:
            at, what = begun.pop(name)
            yield at, note.at, what
    for at, what in begun.values():
        yield at, end, what
