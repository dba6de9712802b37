"""Files with secrets: replaced at once, and never readable by others in between."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

PRIVATE: Final = 0o600  # only its user may read it


def replace_file(path: Path, content: str | bytes, *, mode: int = PRIVATE) -> None:
    """Replace a file at once by one with this content and mode.

    Raises:
        OSError: It cannot be written; the former one is still there.
    """
    new = path.with_name(f"{path.name}.new")
    new.unlink(missing_ok=True)  # of a process that was killed; it may have another mode
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(content.encode() if isinstance(content, str) else content)
    new.chmod(mode)
    new.replace(path)
