"""A contract of import-linter for one row of ARCHITECTURE's table: what a room may import.

import-linter's own contracts list what is forbidden. A list of what is allowed also refuses a room
that is added later, and is the table's third column as it stands.
"""

from __future__ import annotations

from typing import Any, Final

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output

DIVIDED: Final = frozenset({"eruca"})
"""Packages whose rooms have rows of their own. The name alone is the module: what it exports."""


class MayImport(Contract):
    """Refuses a direct import of ours that the row does not list; a room may import itself.

    Options:
        rooms: Modules, or packages with all that is in them.
        may_import: The same, of other rooms.
    """

    type_name = "may_import"
    rooms = fields.ListField(subfield=fields.StringField())
    may_import = fields.ListField(subfield=fields.StringField(), required=False, default=[])

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Compare each import of the rooms with the list."""
        rooms: list[str] = self.rooms  # type: ignore[assignment]
        allowed: list[str] = [*rooms, *self.may_import]  # type: ignore[misc]
        ours: list[str] = self.session_options["root_packages"]
        missing = [room for room in allowed if room not in graph.modules]
        refused = [
            graph.get_import_details(importer=importer, imported=imported)[0]
            for importer in sorted(graph.modules)
            if _is_in(importer, rooms)
            for imported in sorted(graph.find_modules_directly_imported_by(importer))
            if imported.partition(".")[0] in ours and not _is_in(imported, allowed)
        ]
        return ContractCheck(
            kept=not (missing or refused), metadata={"missing": missing, "refused": refused}
        )

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Print each refused import with its place."""
        metadata: dict[str, Any] = check.metadata
        for room in metadata["missing"]:
            output.print_error(f"there is no module {room}", bold=False)
        for one in metadata["refused"]:
            output.print_error(
                f"{one['importer']}:{one['line_number']} must not import {one['imported']}",
                bold=False,
            )


def _is_in(module: str, rooms: list[str]) -> bool:
    return any(
        module == room or (room not in DIVIDED and module.startswith(f"{room}.")) for room in rooms
    )
