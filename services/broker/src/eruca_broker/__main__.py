"""``eruca-broker``, or ``python -m eruca_broker``: run a broker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from eruca_chassis.running.program import quick_imports

if TYPE_CHECKING:
    from eruca_broker.settings import BrokerSettings
    from eruca_chassis.running.checking import Finding


def main() -> None:
    """Do what the command line requests: serve, unless it requests something else."""
    with quick_imports():
        from eruca_broker.app import create_app
        from eruca_broker.settings import BrokerSettings
        from eruca_chassis.running.command_line import Act, run_program
    run_program(
        BrokerSettings,
        create_app,
        name=lambda settings: f"broker {settings.name}",
        inspect=_inspect,
        acts=[
            Act(
                "--restore-from-tier",
                "make a store of what the tier has, in an empty directory, after a disk was lost; "
                "start nothing; it may be repeated until it succeeds",
                _restore,
                {
                    "--from": (
                        "LOG_OFFSET",
                        "only from the segment with this log offset on; what "
                        "is before it is read from the tier; default: as much as there is room for",
                    ),
                    "--log": ("LOG_ID", "the log, if the tier's place has several of this name"),
                },
            )
        ],
    )


def _inspect(settings: BrokerSettings) -> Iterable[Finding]:
    """Look at the store, for ``--check``."""
    from eruca_broker.inspection import findings  # here: no start needs it

    return findings(settings)


def _restore(settings: BrokerSettings, options: Mapping[str, str]) -> int:
    """Restore the store from the tier, for ``--restore-from-tier``."""
    from eruca_broker.restoring import restore_from_tier  # here: no start needs it

    return restore_from_tier(settings, options)


if __name__ == "__main__":
    main()
