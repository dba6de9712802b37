"""The beginning of a broker's log, for readers of its log feed. Pure."""

from __future__ import annotations

from eruca.contract.errors import UnavailableError
from eruca.contract.status import BrokerStatus


def log_begin(status: BrokerStatus) -> int:
    """Return the log offset of the first record that a broker's log feed has.

    With a tier, it is before the first record on the broker's disk. A broker that does not know yet
    what its tier has is asked again later: reading from its disk on would leave a gap unnoticed.

    Of a group's replicas, the master knows it. Another one may have no tier, be of an earlier
    version, or have less on its disk. Its word counts only if its log begins with the first record.

    Raises:
        UnavailableError: The broker does not know it yet, or is not the master.
    """
    log = status.log
    begin = log.begin_offset
    if "begin_offset" not in log.model_fields_set:
        begin = log.min_offset  # the broker's version does not report it, nor read its tier
    if begin == 0 or (begin is not None and status.role == "master"):
        return begin
    if begin is not None:
        raise UnavailableError(
            f"replica {status.broker_id} of {status.broker_name} has the log from offset {begin} "
            "on, and only the master knows where it begins",
            fix="wait for a master; if none is elected, see: eruca broker show "
            f"{status.broker_name}",
            retry_after_seconds=1.0,
        )
    raise UnavailableError(
        f"broker {status.broker_name} does not know yet where its log begins: it has not read its "
        "tier since it started, or not since retention has deleted segments",
        fix="wait; tier.failure of the broker's status says why if it stays so",
        retry_after_seconds=1.0,
    )
