"""Pages of names, for lists that are read page by page."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from itertools import islice


def page_of(
    names: Iterable[str],
    *,
    after: str | None,
    limit: int,
    sees: Callable[[str], bool] | None = None,
) -> tuple[list[str], str | None]:
    """Return up to *limit* of *names* behind *after*, in order, and where the next page begins.

    Args:
        names: Of everything that is listed.
        after: The last name of the preceding page; None: there is none.
        limit: The maximum number.
        sees: Returns whether the caller may see a name; None: it may see all. It is asked about no
            more names than the page needs, because rights take longer to evaluate than names.
    """
    ordered = sorted(names)
    rest: Iterable[str] = islice(
        ordered, 0 if after is None else bisect_right(ordered, after), None
    )
    chosen = list(islice(rest if sees is None else filter(sees, rest), limit + 1))
    if len(chosen) <= limit:
        return chosen, None
    return chosen[:limit], chosen[limit - 1]
