"""The retry limit of ordered messages: the consumer's setting, else its group's.

When a message fails, the consumer reads the group's limit from that message's broker, and again
from time to time. An operator may change the limit to get a queue going that a poisonous message
blocks.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from eruca.aio.cluster.group_api import GroupApi
from eruca.contract.errors import ErucaError
from eruca.core.messages.message_queue import MessageQueue

ASK_SECONDS: Final = 3.0  # from one request to the next

_logger = logging.getLogger(__name__)


class RetryLimit:
    """The retry limit of one consumer's messages.

    Args:
        settled: The consumer's setting; None: use the group's.
        api: The member's requests.
        url_of: Returns the URL of a queue's broker; raises ErucaError if there is none.
    """

    def __init__(
        self, settled: int | None, api: GroupApi, url_of: Callable[[MessageQueue], str]
    ) -> None:
        self._max_times = settled
        self._is_settled = settled is not None
        self._api = api
        self._url_of = url_of
        self._ask_at = 0.0  # by the monotonic clock

    async def max_times(self, queue: MessageQueue) -> int | None:
        """Return the maximum number of retries for *queue*; None while it is unknown."""
        if not self._is_settled and time.monotonic() >= self._ask_at:
            try:
                config = await self._api.config(self._url_of(queue))
            except ErucaError as error:
                _logger.info("the group's retry limit is unknown now: %s", error)
            else:
                self._max_times = config.retries_max
                self._ask_at = time.monotonic() + ASK_SECONDS
        return self._max_times
