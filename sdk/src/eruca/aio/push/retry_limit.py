"""How often an ordered message is retried: as the consumer was told, else as its group says.

The group is asked when the first message fails, at that message's broker: a consumer may have been
started before there was any broker to ask.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from eruca.aio.group_api import GroupApi
from eruca.contract.errors import ErucaError
from eruca.core.message_queue import MessageQueue

_logger = logging.getLogger(__name__)


class RetryLimit:
    """The retries of one consumer's messages.

    Args:
        settled: What the consumer was told; None: as the group says.
        api: The member's requests.
        url_of: Tells the URL of a queue's broker; raises ErucaError if there is none.
    """

    def __init__(
        self, settled: int | None, api: GroupApi, url_of: Callable[[MessageQueue], str]
    ) -> None:
        self._max_times = settled
        self._api = api
        self._url_of = url_of

    async def max_times(self, queue: MessageQueue) -> int | None:
        """Return after how many retries a message of *queue* is dead; None while not known."""
        if self._max_times is None:
            try:
                config = await self._api.config(self._url_of(queue))
            except ErucaError as error:
                _logger.info("how often to retry is not known just now: %s", error)
            else:
                self._max_times = config.retry_max_times
        return self._max_times
