"""``eruca-broker``, or ``python -m eruca_broker``: run a broker."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from eruca_chassis.program import quick_imports

if TYPE_CHECKING:
    from eruca_broker.settings import BrokerSettings
    from eruca_chassis.checking import Finding


def main() -> None:
    """Do what the command line requests: serve, unless it requests something else."""
    with quick_imports():
        from eruca_broker.app import create_app
        from eruca_broker.settings import BrokerSettings
        from eruca_chassis.command_line import run_program
    run_program(
        BrokerSettings,
        create_app,
        name=lambda settings: f"broker {settings.name}",
        inspect=_inspect,
    )


def _inspect(settings: BrokerSettings) -> Iterable[Finding]:
    """Look at the store, for ``--check``."""
    from eruca_broker.inspection import findings  # here: no start needs it

    return findings(settings)


if __name__ == "__main__":
    main()
