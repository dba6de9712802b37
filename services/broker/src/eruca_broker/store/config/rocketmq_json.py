"""Reading the JSON that RocketMQ writes: a map's integer keys stand in it without quotes.

Source: RocketMQ 5.3, ``RemotingSerializable``, which is fastjson's.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

_BARE_KEY: Final = re.compile(r"([{,]\s*)(-?\d+)\s*:")


def decode(text: str) -> Any:  # noqa: ANN401 - as json.loads
    """Return what *text* says; raises ValueError where it is not JSON even so."""
    return json.loads(_BARE_KEY.sub(r'\1"\2":', text))
