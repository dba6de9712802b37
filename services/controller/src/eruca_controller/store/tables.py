"""The controller's tables in PostgreSQL: groups, their changes, and the versions of the policy.

``row`` is the text of :meth:`eruca_controller.core.rows.GroupRow.to_text`, or that of
:meth:`eruca_controller.core.policies.PolicyRow.to_text`. The other columns are taken from it, for
conditions and order.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import BigInteger, Boolean, Column, MetaData, Table, Text

SCHEMA: Final = "eruca_controller"
metadata: Final = MetaData()

broker_groups: Final = Table(
    "broker_groups",
    metadata,
    Column("broker_name", Text(collation="C"), primary_key=True),
    Column("version", Text, nullable=False),
    Column("is_live", Boolean, nullable=False),
    Column("row", Text, nullable=False),
)

broker_group_changes: Final = Table(
    "broker_group_changes",
    metadata,
    Column("broker_name", Text(collation="C"), primary_key=True),
    Column("number", BigInteger, primary_key=True),
    Column("row", Text, nullable=False),
)

policies: Final = Table(
    "policies",
    metadata,
    Column("number", BigInteger, primary_key=True),
    # Unique, so that a version has one successor: that is the comparison of compare-and-set.
    Column("previous", Text(collation="C"), nullable=False, unique=True),
    Column("version", Text(collation="C"), nullable=False),
    Column("row", Text, nullable=False),
)
