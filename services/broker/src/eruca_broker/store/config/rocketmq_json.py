"""Read the JSON files in ``config/``, in which any byte may be damaged.

RocketMQ writes a map's integer keys without quotes; its files and Eruca's are read alike. Any
invalid file raises one kind of error, which names file, place and fault. The caller decides whether
it can do without the file.

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
    """A file in ``config/`` cannot be read or parsed; the text names it and the fault."""


def read_object(path: Path) -> dict[str, Any]:
    """Return the JSON object in the file at *path*; an empty one if the file is missing.

    Raises:
        UnreadableConfigError: It is not a regular file, cannot be read, is too large, or is
            anything but one JSON object in UTF-8 without repeated members.
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
    """Return the object in a file, or in its backup if the file is unreadable.

    RocketMQ writes in place, and may be killed meanwhile; the backup is the previous content.

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
    """Parse a JSON text whose integer keys may lack their quotes.

    Raises:
        ValueError: It is not such JSON, or an object repeats a member; the text names the place.
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
    raise ValueError(f"{name} is not a JSON number")


def _position(text: str, quoted: int) -> int:
    """Return the place in *text* of the place *quoted*, which counts the added quotes."""
    grown = 0
    for key in _BARE_KEY.finditer(text):
        if key.start() + grown >= quoted:
            break
        grown += len(key[1]) + len(key[2]) + len('"":') - len(key[0])
    return min(max(quoted - grown, 0), len(text))
