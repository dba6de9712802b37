"""Wrong rules: each function breaks one rule of the product in the process that calls it.

A suite that does not find them finds nothing. Each is the fault of a real system, which the product
excludes by a rule. None of it is in the product: a process of a run is started with the name of a
mutation, and patches itself before the service starts.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, NamedTuple


def confirm_alone() -> None:
    """Confirm what the master alone holds (RocketMQ's default of one in-sync replica)."""
    from eruca_broker.core.replication.in_sync import Copies

    def advanced(self: Copies, durable_end: int) -> Copies:
        return self if durable_end <= self.confirmed else replace(self, confirmed=durable_end)

    Copies.advanced = advanced  # type: ignore[method-assign]


def count_impossible_acknowledgements() -> None:
    """Count each acknowledgement, beyond the master's end too (RocketMQ's issues 1155, 3015).

    And no log is truncated: such a replica keeps what the master never wrote.
    """
    from eruca_broker.core.replication import lineage
    from eruca_broker.core.replication.broker_group import Member
    from eruca_broker.core.replication.in_sync import Copies
    from eruca_broker.core.replication.lineage import Lineage

    def acknowledged(
        self: Copies, member: Member, *, epoch: int, log_offset: int, written_end: int
    ) -> Copies:
        del epoch, written_end
        return self._with(member, log_offset)

    def common_end(master: Lineage, replica: Lineage) -> int:
        del master
        return replica.end

    Copies.acknowledged = acknowledged  # type: ignore[method-assign]
    _patch_everywhere(lineage.common_end, common_end)


def accept_wiped_disks() -> None:
    """Give each store of a replica id the same uid, a new one too (Kafka's KIP-903)."""
    from eruca_broker.store import identity

    replica = os.environ["ERUCA_BROKER_REPLICA_ID"]
    _patch_everywhere(identity._new_uid, lambda *_, **__: f"replica-{replica}")


def _patch_everywhere(function: Callable[..., Any], by: Callable[..., Any]) -> None:
    """Replace a function in each module that has imported it, or will."""
    import importlib
    import pkgutil
    import sys

    import eruca_broker

    for found in pkgutil.walk_packages(eruca_broker.__path__, "eruca_broker."):
        if not found.name.endswith("__main__"):
            importlib.import_module(found.name)
    name = function.__name__
    for module in list(sys.modules.values()):
        if getattr(module, name, None) is function:
            setattr(module, name, by)


class Mutation(NamedTuple):
    """A wrong rule, and the faults under which it shows."""

    begin: Callable[[], None]
    nemeses: tuple[str, ...]
    checkers: tuple[str, ...]  # one of them must find it


MUTATIONS: Final[dict[str, Mutation]] = {
    "confirms alone": Mutation(confirm_alone, ("isolate master",), ("lost", "unseen")),
    "counts impossible acknowledgements": Mutation(
        count_impossible_acknowledgements,
        ("isolate master",),
        ("lost", "unseen", "inconsistent-offset", "equal-logs", "caught-up"),
    ),
    "accepts wiped disks": Mutation(
        accept_wiped_disks,
        ("wiped disk in partition",),
        ("lost", "unseen", "inconsistent-offset"),
    ),
}


def apply(name: str) -> None:
    """Break a rule; do nothing if *name* is empty."""
    if name:
        MUTATIONS[name].begin()
