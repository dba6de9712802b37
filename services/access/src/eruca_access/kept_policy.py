"""The last policy of the controllers, kept on a service's own disk.

A service starts from it while no controller answers. The file has the policy's version and a
checksum, so a damaged one counts as none. It is only replaced as a whole, and only by a newer one.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from eruca.contract.access import PolicyDocument
from eruca_chassis.files.whole_files import replace_file


class DamagedPolicyError(Exception):
    """The file is there, and is not what was written; the text says why."""


@dataclass(frozen=True, slots=True)
class KeptPolicy:
    """A policy with its version.

    Attributes:
        number: The number of the version; it only grows.
        version: The text that identifies it.
        document: The policy.
    """

    number: int
    version: str
    document: PolicyDocument


def read_kept(path: Path) -> tuple[KeptPolicy, float] | None:
    """Return the policy in a file, and the time at which it was written; None: there is no file.

    Raises:
        DamagedPolicyError: The file is no such policy.
    """
    try:
        text = path.read_bytes()
        written_at = path.stat().st_mtime
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DamagedPolicyError(f"it cannot be read: {error.strerror}") from error
    try:
        kept = json.loads(text)
        policy = kept["policy"]
        if _checksum(kept["version"], policy) != kept["sha256"]:
            raise DamagedPolicyError("its checksum is wrong")
        document = PolicyDocument.model_validate(policy)
        return KeptPolicy(int(kept["number"]), str(kept["version"]), document), written_at
    except ValidationError:
        raise DamagedPolicyError("it has rules that this version does not know") from None
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedPolicyError(f"it is no kept policy: {type(error).__name__}") from error


def write_kept(path: Path, kept: KeptPolicy) -> None:
    """Replace the file, durably.

    Raises:
        OSError: It was not replaced.
    """
    policy = kept.document.model_dump(mode="json", by_alias=True)
    content = {
        "number": kept.number,
        "version": kept.version,
        "sha256": _checksum(kept.version, policy),
        "policy": policy,
    }
    replace_file(path, json.dumps(content).encode())


def _checksum(version: str, policy: object) -> str:
    text = json.dumps([version, policy], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
