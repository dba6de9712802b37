"""``eruca-namesrv --check``: look at the key-value table, and change nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from eruca_chassis.counts import counted
from eruca_chassis.running.checking import Finding, directory_finding
from eruca_namesrv.kv import InvalidKvFileError, stored_table
from eruca_namesrv.settings import NamesrvSettings

_SUBJECT: Final = "key-value table"


def findings(settings: NamesrvSettings) -> Iterator[Finding]:
    """Yield what a start would find in the file of the table."""
    path = settings.kv_file
    if path is None:
        yield Finding("ok", _SUBJECT, "in memory, lost at a restart")
        return
    fix = "set ERUCA_NAMESRV_KV_FILE to a file in a directory that it may read and write"
    found = directory_finding(path.parent, _SUBJECT, fix=fix)
    if found is not None:
        yield found
        return
    try:
        table = stored_table(path)
    except InvalidKvFileError as error:
        yield Finding("fault", _SUBJECT, str(error))
        return
    if table is None:
        yield Finding("ok", _SUBJECT, f"a start would make {path}, which does not exist yet")
        return
    count = sum(map(len, table.values()))
    yield Finding("ok", _SUBJECT, f"{path} has {counted(count, 'key')}")
