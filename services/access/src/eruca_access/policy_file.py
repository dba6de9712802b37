"""The file of ``ERUCA_AUTH_FILE``: roles, rules and the digests of API keys, in TOML.

It is read again when it changes. A file with a mistake changes nothing: the last good rules stay in
force, and log and metrics say so. Nobody loses rights, or gets them, by a typing error.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from eruca.contract.access import PolicyDocument
from eruca.core.access.policy_text import InvalidPolicyError, parse_policy

FILE_SIZE_MAX: Final = 64 * 1024 * 1024  # bytes


def read_policy(path: Path) -> PolicyDocument:
    """Read and check the policy in a file.

    Raises:
        InvalidPolicyError: It is unreadable, no TOML, or no policy.
    """
    try:
        if path.stat().st_size > FILE_SIZE_MAX:
            raise InvalidPolicyError(f"{path}: larger than {FILE_SIZE_MAX} bytes")
        return parse_policy(path.read_bytes().decode())
    except OSError as error:
        raise InvalidPolicyError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidPolicyError(f"{path}: not UTF-8: {error.reason}") from error
    except InvalidPolicyError as error:
        raise InvalidPolicyError(f"{path}: {error.detail}") from error
