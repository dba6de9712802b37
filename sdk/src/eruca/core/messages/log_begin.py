"""The beginning of a broker's log, for readers of its log feed. Pure."""

from __future__ import annotations

from eruca.contract.errors import UnavailableError
from eruca.contract.status import BrokerStatus


def log_begin(status: BrokerStatus) -> int:
    """Return the log offset of the first record that a broker's log feed has.

    With a tier, it is before the first record on the broker's disk. A broker that does not know yet
    what its tier has is asked again later: reading from its disk on would leave a gap unnoticed.

    Raises:
        UnavailableError: The broker does not know it yet.
    """
    log = status.log
    if "begin_offset" not in log.model_fields_set:
        return log.min_offset  # the broker's version does not report it, nor read its tier
    if log.begin_offset is not None:
        return log.begin_offset
    raise UnavailableError(
        f"broker {status.broker_name} does not know yet where its log begins: it has not read its "
        "tier since it started, or not since retention has deleted segments",
        fix="wait; tier.failure of the broker's status says why if it stays so",
        retry_after_seconds=1.0,
    )
