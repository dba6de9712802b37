"""Pages of the console that show what the demo has done."""

from __future__ import annotations

from urllib.parse import quote

from demo import crew, journey


def pages(flight_id: str, ticket_id: str | None) -> dict[str, str]:
    """Return the paths of pages by what they show.

    Args:
        flight_id: The message id of the flight that was found.
        ticket_id: A transaction that the checker asked about; None: there was none.
    """
    found = {
        "the cluster": "/overview",
        "the flights": f"/topics/{journey.TOPIC}",
        "the group whose member was killed": f"/groups/{crew.GROUP}",
        "the life of the flight that was found": _of_message(flight_id),
    }
    if ticket_id is not None:
        found["the life of a ticket that the checker asked about"] = _of_message(ticket_id)
    found["the brokers, and who leads them after the kills"] = "/brokers"
    return found


def _of_message(message_id: str) -> str:
    return f"/messages/{quote(message_id, safe='')}"
