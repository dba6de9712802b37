"""Read a file of settings, which sets variables that the environment lacks.

It is in TOML and holds the settings of one service::

    port = 8080                                  # ERUCA_THING_PORT
    allowed_hosts = ["thing.example", "*.lan"]   # an array stands for a text with semicolons

    [shared]                                     # variables without the service's prefix
    auth_file = "/etc/eruca/rules.toml"          # ERUCA_AUTH_FILE
    database_url_file = "/etc/eruca/database"    # DATABASE_URL_FILE

:func:`set_from_file` puts them into the environment of the process, because that is where the SDK
and child processes look for what they share. A variable that is already there wins. An unknown key
is refused: a misspelt setting must not look like a default.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Any, Final

from eruca_chassis.running.known_settings import SHARED_TABLE, KnownSetting, known_settings
from eruca_chassis.running.settings import ServiceSettings, SettingsError, nearest

_SEPARATOR: Final = ";"  # of the values in a variable that takes several
_EXPECTED: Final = "expected a text, a number, true, false, or an array of texts without ';'"


def set_from_file(
    path: Path, kind: type[ServiceSettings], environment: MutableMapping[str, str]
) -> dict[str, str]:
    """Set the variables in the file at *path* that *environment* lacks.

    Returns:
        For each variable that was set, the words that name its place in the file.

    Raises:
        SettingsError: The file cannot be read, or a key or a value in it is invalid. Then no
            variable was set.
    """
    document = _parsed(path)
    known = {setting.key: setting for setting in known_settings(kind).all}
    files = kind.secret_files()
    pairs = {**files, **{file: variable for variable, file in files.items()}}
    variables: dict[str, str] = {}
    sources: dict[str, str] = {}
    faults: list[str] = []
    for key, value in _entries(document):
        setting = known.get(key)
        if setting is None:
            faults.append(f"{path}: {key}: unknown setting; {_advice(key, known)}")
            continue
        text = _text_of(value)
        if text is None:
            faults.append(f"{path}: {key}: {_EXPECTED}")
            continue
        variable = setting.variable
        # A secret and the file that has it are two spellings of one setting.
        if variable in environment or pairs.get(variable, variable) in environment:
            continue
        variables[variable] = text
        sources[variable] = f"{path}: {key}"
    if faults:
        raise SettingsError(faults)
    environment.update(variables)
    return sources


def _parsed(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))  # editors may write a BOM
    except OSError as error:
        raise SettingsError([f"{path}: cannot be read: {error.strerror}"]) from None
    except UnicodeDecodeError:
        raise SettingsError([f"{path}: expected TOML, which is UTF-8"]) from None
    except tomllib.TOMLDecodeError as error:
        raise SettingsError([f"{path}: invalid TOML: {error}"]) from None
    except RecursionError:
        fault = "arrays or tables are nested too deeply"
        raise SettingsError([f"{path}: invalid TOML: {fault}"]) from None
    except ValueError:  # tomllib lets int's own error through
        raise SettingsError([f"{path}: invalid TOML: a number has too many digits"]) from None


def _entries(document: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in document.items():
        if key == SHARED_TABLE and isinstance(value, dict):
            yield from ((f"{SHARED_TABLE}.{name}", inner) for name, inner in value.items())
        else:
            yield key, value


def _advice(key: str, known: dict[str, KnownSetting]) -> str:
    """Return advice on an unknown key; the table that it stands in may be the wrong one, too."""
    bare = key.removeprefix(f"{SHARED_TABLE}.")
    for other in (bare, f"{SHARED_TABLE}.{bare}", bare.lower()):
        if other in known:
            return f"did you mean {other}?"
    for other, setting in known.items():
        if bare == setting.variable:
            return f"did you mean {other}?"
    return nearest(key, {name: name for name in known})


def _text_of(value: object) -> str | None:
    """Return a value as an environment variable has it; None: it has no such form."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        try:
            return str(value)
        except ValueError:  # it has more digits than Python converts, written in another base
            return None
    if isinstance(value, str):
        return None if "\0" in value else value
    if isinstance(value, list):
        texts = [item if isinstance(item, str) else None for item in value]
        if any(text is None or _SEPARATOR in text or "\0" in text for text in texts):
            return None
        return _SEPARATOR.join(text for text in texts if text is not None)
    return None
