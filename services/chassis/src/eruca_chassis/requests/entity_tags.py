"""Which answers a client has already, as its ``If-None-Match`` says.

Source: RFC 9110 sections 8.8.3 and 13.1.2.
"""

from __future__ import annotations

import re
from collections.abc import Set as AbstractSet
from typing import Final

ANY_TAG: Final = "*"  # whatever there is
_TAGS: Final = re.compile(r'\*|"[^"]*"')  # weak ones compare like strong ones here


def known_tags(if_none_match: str | None) -> frozenset[str]:
    """Return the tags of a request's header, quoted and without what marks a weak one."""
    return frozenset(_TAGS.findall(if_none_match or ""))


def is_known(tag: str, known: AbstractSet[str]) -> bool:
    """Return whether a client that has the *known* ones has the answer of this quoted *tag*."""
    return tag in known or ANY_TAG in known
