"""Appointments: rows that name a replica as master although its process has not asked for that.

A replica has promised the master that it follows not to become master for a while, and that master
trusts the promise: it is its lease (rule 10). So a replica that anybody else appoints waits until
its promise is over. There are two exceptions:

- The master itself has appointed it. A master that hands over has ceased to answer before it asks
  the arbiter.
- The replica was the master before. Then it has followed nobody since.

The author of a row's last change tells them apart.
"""

from __future__ import annotations

import re
from typing import Final

from eruca_broker.core.replication.broker_group import BrokerGroup, Member
from eruca_broker.core.replication.roles import Standing

_AUTHOR: Final = re.compile(r"(?P<name>.+) replica (?P<id>[1-9][0-9]*) run [0-9a-f]+")


def author_of(broker_name: str, replica_id: int, run: str) -> str:
    """Return the author of a replica's changes; *run* is hexadecimal, and names the process."""
    author = f"{broker_name} replica {replica_id} run {run}"
    assert replica_of(author) == replica_id
    return author


def replica_of(author: str) -> int | None:
    """Return the id of the replica that is the author of a change; None: it was no replica."""
    found = _AUTHOR.fullmatch(author)
    return None if found is None else int(found["id"])


def is_released(group: BrokerGroup, me: Standing, *, author: str, followed: Member | None) -> bool:
    """Tell whether a replica may take the next term although its promise is not over.

    Args:
        group: The row, which names the replica as the master.
        me: The replica.
        author: Of the row's last change.
        followed: The master that its process has followed last; None: nobody.
    """
    assert group.master == me.member
    if me.last_epoch == group.epoch:  # it led the row's term, which began in its log
        return True
    by = replica_of(author)
    return by is not None and by in (me.member.replica_id, followed and followed.replica_id)
