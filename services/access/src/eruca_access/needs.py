"""Declare what an operation needs, in the words of rules.

::

    needs=to(Right.PRODUCE, topic=in_path("topic"))
    needs=to(Right.CONSUME, group=in_path("group")) & to(Right.CONSUME, topic=in_body("topic"))
    needs=see(topic=in_path("topic"))

An operation that only shows what a name stands for, such as a route, is open to everybody with any
right on it: a producer has to find the queues of its topic.

An operation for which nothing but the right to administer is enough is an act, which the audit
records. Services repeat some of them every few seconds: these are routine, and are not recorded.
"""

from __future__ import annotations

from typing import Final

from eruca.contract.access import ResourceKind, Right
from eruca_chassis.admission.needs import ONLY, Demand, Needs, On, Place

ANY_RIGHT: Final = tuple(Right)
ACT_RIGHTS: Final = (Right.ADMINISTER,)
"""The rights of a demand whose use is an act."""


def to(
    *rights: Right,
    topic: Place | None = None,
    group: Place | None = None,
    broker: Place | None = None,
    log: bool = False,
    cluster: bool = False,
    audit: bool = False,
    is_routine: bool = False,
) -> Needs:
    """Return the need of one of *rights* on each resource that is given by its place.

    With *is_routine*, the audit does not record each use of a right to administer.
    """
    named = {
        ResourceKind.TOPIC: topic,
        ResourceKind.GROUP: group,
        ResourceKind.BROKER: broker,
        ResourceKind.LOG: ONLY if log else None,
        ResourceKind.CLUSTER: ONLY if cluster else None,
        ResourceKind.AUDIT: ONLY if audit else None,
    }
    ons = tuple(On(rights, kind, place) for kind, place in named.items() if place is not None)
    assert rights, "a need has a right"
    assert ons, "a need has a resource"
    return Needs(ons, is_act=rights == ACT_RIGHTS and not is_routine)


def see(
    *, topic: Place | None = None, group: Place | None = None, broker: Place | None = None
) -> Needs:
    """Return the need of any right on the resources."""
    return to(*ANY_RIGHT, topic=topic, group=group, broker=broker)


def on_topic(topic: str, *rights: Right) -> Demand:
    """Return the demand of one of *rights* on *topic*; without rights, of any."""
    return Demand(rights or ANY_RIGHT, ResourceKind.TOPIC, topic)


def on_group(group: str, *rights: Right) -> Demand:
    """Return the demand of one of *rights* on *group*; without rights, of any."""
    return Demand(rights or ANY_RIGHT, ResourceKind.GROUP, group)


def on_log(*rights: Right) -> Demand:
    """Return the demand of one of *rights* on the log."""
    return Demand(rights, ResourceKind.LOG, "")


def on_cluster(*rights: Right) -> Demand:
    """Return the demand of one of *rights* on the cluster."""
    return Demand(rights, ResourceKind.CLUSTER, "")
