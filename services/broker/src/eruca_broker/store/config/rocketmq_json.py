"""Reading the JSON files in ``config/``, where any byte may be wrong.

RocketMQ writes a map's integer keys without quotes; its files and Eruca's are read alike. A file
that is no such JSON raises one error, whatever is wrong with it, which names file, place and fault:
the caller decides whether it can do without.

Source: RocketMQ 5.3, ``RemotingSerializable``, which is fastjson's.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

import structlog

from eruca_broker.store.files.small_files import read_file

FILE_SIZE_MAX: Final = 256 * 1024 * 1024  # bytes; the offsets of millions of queues take less

logger = structlog.get_logger(__name__)

_BARE_KEY: Final = re.compile(r"([{,]\s*)(-?\d+)\s*:")


class UnreadableConfigError(ValueError):
    """A file in ``config/`` cannot be read or understood; the text names it and what was found."""


def read_object(path: Path) -> dict[str, Any]:
    """Return the JSON object in the file at *path*; an empty one where there is no file.

    Raises:
        UnreadableConfigError: It is no regular file, cannot be read, is too large, or holds
            anything but one JSON object in UTF-8 without a member that is given twice.
    """
    try:
        text = read_file(path, FILE_SIZE_MAX).decode("utf-8")
        content = decode(text)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise UnreadableConfigError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UnreadableConfigError(
            f"{path}: expected UTF-8, found byte {error.object[error.start]:#04x} at byte"
            f" {error.start}"
        ) from error
    except RecursionError as error:
        raise UnreadableConfigError(f"{path}: its JSON is nested too deeply") from error
    except ValueError as error:
        raise UnreadableConfigError(f"{path} is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise UnreadableConfigError(
            f"{path}: expected a JSON object, found {type(content).__name__}"
        )
    return content


def read_object_or_backup(path: Path) -> dict[str, Any]:
    """Return the object in a file, or where that is unreadable, the one in its backup.

    RocketMQ writes in place, and may be killed at it; its backup is what it was about to replace.

    Raises:
        UnreadableConfigError: Neither can be read.
    """
    backup = path.with_name(f"{path.name}.bak")
    if not path.exists():
        return read_object(backup)
    try:
        return read_object(path)
    except UnreadableConfigError as error:
        if not backup.exists():
            raise
        logger.warning("a config file is damaged; its backup is read", fault=str(error))
        return read_object(backup)


def decode(text: str) -> Any:  # noqa: ANN401 - as json.loads
    """Return the value of a JSON text whose integer keys may lack their quotes.

    Raises:
        ValueError: It is not JSON even so, or an object has a member twice; the place is told.
        RecursionError: It is nested too deeply.
    """
    try:
        return json.loads(
            _BARE_KEY.sub(r'\1"\2":', text),
            object_pairs_hook=_unique,
            parse_constant=_refuse_constant,
        )
    except json.JSONDecodeError as error:
        at = len(text[: _position(text, error.pos)].encode("utf-8", "surrogatepass"))
        raise ValueError(f"{error.msg} at byte {at}") from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in members if names.count(name) > 1)
        raise ValueError(f"the member {twice!r} is given twice")
    return members


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")


def _position(text: str, quoted: int) -> int:
    """Return where in *text* the place *quoted* lies, counted with the quotes that were added."""
    grown = 0
    for key in _BARE_KEY.finditer(text):
        if key.start() + grown >= quoted:
            break
        grown += len(key[1]) + len(key[2]) + len('"":') - len(key[0])
    return min(max(quoted - grown, 0), len(text))
