"""The roles that exist without being defined: one for each purpose of a service or a person.

A policy says who has such a role, and may grant it more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from eruca.contract.access import AccessRule, Right

_EVERYTHING: Final = ["topic:*", "group:*", "broker:*", "log", "cluster", "audit"]


def _grant(role: str, rights: list[Right], on: list[str]) -> AccessRule:
    return AccessRule(allow=rights, on=on, to=[f"role:{role}"])


PREDEFINED_RULES: Final = (
    _grant("administrator", list(Right), _EVERYTHING),
    # Reads who did what.
    _grant("auditor", [Right.QUERY, Right.CONSUME], ["audit"]),
    # Registers, serves and follows its master, and elects one at the controllers.
    _grant("broker", [Right.ADMINISTER, Right.QUERY], ["broker:*"]),
    _grant("broker", [Right.QUERY], ["cluster"]),
    _grant("broker", [Right.PRODUCE], ["audit"]),
    # Follows the policy at the controllers, and reports to brokers who did what.
    _grant("name-server", [Right.QUERY], ["cluster"]),
    _grant("name-server", [Right.PRODUCE], ["audit"]),
    # Follows the policy. It does everything else with the credentials of its callers.
    _grant("console", [Right.QUERY], ["cluster"]),
    _grant("console", [Right.PRODUCE], ["audit"]),
    # Asks brokers for their standing, and announces itself at name servers.
    _grant("controller", [Right.ADMINISTER, Right.QUERY], ["broker:*"]),
    _grant("controller", [Right.QUERY, Right.PRODUCE], ["cluster"]),
    _grant("controller", [Right.PRODUCE], ["audit"]),
    # Follows all logs, reads bodies, and announces itself at name servers.
    _grant("query-service", [Right.QUERY, Right.CONSUME], ["topic:*", "group:*", "log", "audit"]),
    _grant("query-service", [Right.QUERY], ["broker:*"]),
    _grant("query-service", [Right.QUERY, Right.PRODUCE], ["cluster"]),
    _grant("query-service", [Right.PRODUCE], ["audit"]),
    # Follows all logs, grants checks, and decides as producers tell it.
    _grant("transaction-checker", [Right.QUERY, Right.ADMINISTER], ["log"]),
    _grant("transaction-checker", [Right.PRODUCE, Right.QUERY], ["topic:*", "group:*"]),
    _grant("transaction-checker", [Right.QUERY], ["broker:*"]),
    _grant("transaction-checker", [Right.QUERY, Right.PRODUCE], ["cluster"]),
    _grant("transaction-checker", [Right.PRODUCE], ["audit"]),
)

PREDEFINED_ROLES: Final[Mapping[str, str]] = {
    "administrator": "a person who may do everything",
    "auditor": "a person who may read who did what",
    "broker": "a broker, or a replica of one",
    "console": "a console, which calls as its callers",
    "controller": "a controller",
    "name-server": "a name server",
    "query-service": "a query service",
    "transaction-checker": "a transaction checker",
}
"""The purpose of each predefined role."""
