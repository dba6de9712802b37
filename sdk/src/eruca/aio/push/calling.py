"""Call the program's functions: handlers, whose results matter, and listeners.

An exception is a failure; its text goes with the message into the dead letter. An async handler
that exceeds the time limit is cancelled; a thread cannot be cancelled.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from eruca.aio.local_calls import ends_caller
from eruca.aio.push.held_queue import HeldQueue
from eruca.core.call_statistics import CallWindow, ClientStatistics, Series, Tally
from eruca.core.consuming.consume_context import ConsumeContext
from eruca.core.consuming.consume_status import ConsumeStatus, status_of
from eruca.core.consuming.handler_table import Registration
from eruca.core.consuming.push_settings import Listener, PushSettings
from eruca.core.failure_text import text_of_error, text_of_value
from eruca.core.interceptors import HandleOutcome
from eruca.core.messages.message_queue import MessageQueue
from eruca.core.messages.received_message import ReceivedMessage

LOOKS_PER_LIMIT: Final = 10  # checks for slow handlers within one time limit
LOOK_SECONDS_MAX: Final = 1.0
SETTLE_COUNT: Final = 32  # messages that are settled together, at most

_logger = logging.getLogger(__name__)


class Outcome(NamedTuple):
    """A handler's result for its batch."""

    status: ConsumeStatus
    reason: str = "failed"
    error: str | None = None
    kind: HandleOutcome = HandleOutcome.FAILED
    raised: BaseException | None = None


SUCCEEDED = Outcome(ConsumeStatus.SUCCESS, kind=HandleOutcome.SUCCESS)


class Calls:
    """Call the handlers of one consumer."""

    def __init__(self, settings: PushSettings, statistics: ClientStatistics | None = None) -> None:
        self._group = settings.group
        self._statistics = statistics or ClientStatistics(time.monotonic)
        self._statistics.adopt(self)
        self._own = Series(time.monotonic())  # of all topics, of this consumer alone
        self._tallies: dict[str, Tally] = {}  # by topic
        self._move_lock = threading.Lock()
        self._begun: dict[int, float] = {}  # of running plain functions, by thread
        self._is_orderly = settings.ordered
        self._what_next = _what_next(settings)
        self._retries_max = settings.retries.retries_max if settings.is_clustering else None
        self._none_is_failure = settings.retries.none_is_failure
        self._takes_list = settings.batch_count_max > 1
        self._seconds = settings.consume_timeout_seconds
        self._failed = ConsumeStatus.SUSPEND if settings.ordered else ConsumeStatus.RECONSUME_LATER
        self.begun_at = 0.0  # when the event loop last began a handler; read by a thread
        self._deadlines: dict[asyncio.Task[Any], float] = {}  # of running async handlers
        # cancelled because they exceeded the time limit
        self._expired: set[asyncio.Task[Any]] = set()

    def call(
        self,
        registration: Registration,
        messages: Sequence[ReceivedMessage],
        context: ConsumeContext | None,
    ) -> Outcome:
        """Call a plain function, in a thread."""
        thread = threading.get_ident()
        self._begun[thread] = begun_at = time.monotonic()
        try:
            returned = registration.function(*self._arguments(registration, messages, context))
        except BaseException as error:
            # A loop of the handler's own was cancelled: nobody here has cancelled anything. And
            # sys.exit ends only a thread; raised here, it would end the event loop. So would a
            # KeyboardInterrupt: no thread gets one from the terminal, but a process pool forwards
            # one from its processes.
            outcome = self._raised(error, messages)
        else:
            outcome = self._returned(returned)
        del self._begun[thread]
        is_late = not self._is_orderly and time.monotonic() - begun_at >= self._seconds
        # The messages of a late batch are handled again: a success does not count any more.
        self._account(messages, self.timed_out() if is_late else outcome, begun_at)
        return outcome

    async def call_async(
        self,
        registration: Registration,
        messages: Sequence[ReceivedMessage],
        context: ConsumeContext | None,
    ) -> Outcome:
        """Call an async function within the time limit."""
        task = asyncio.current_task()
        assert task is not None
        # One check of all calls now and then costs less than a timer for each.
        self.begun_at = now = time.monotonic()
        self._deadlines[task] = now + self._seconds
        requests = task.cancelling()  # from before: failing TaskGroups leave some, up to 3.12
        try:
            returned = await registration.function(
                *self._arguments(registration, messages, context)
            )
        except asyncio.CancelledError as error:
            outcome = self._cancelled(error, task, requests, messages)
        except Exception as error:  # the outermost frame of a handler
            outcome = self._raised(error, messages)
        else:
            outcome = self._returned(returned)
        finally:
            del self._deadlines[task]
        if self._took_too_long(task):
            outcome = self.timed_out()
        self._account(messages, outcome, now)
        return outcome

    async def call_each(
        self,
        registration: Registration,
        messages: deque[ReceivedMessage],
        held: HeldQueue,
        *,
        ends_at: float,
        settle: Callable[[], None],
    ) -> tuple[ReceivedMessage, Outcome] | None:
        """Call an async function with one message after the other, each within the time limit.

        Return the first message that did not succeed, and its outcome; None after the last message,
        at the end of the stint, or if no further message may begin. For a handler that does not
        wait, it takes a tenth of the time of :meth:`call_async`: nothing is made for a message but
        the handler's coroutine.

        Args:
            registration: The handler's; it takes one message, and no context.
            messages: Taken from the left; others may take them while the handler waits.
            held: Their queue; messages that succeeded are added to its finished ones.
            ends_at: End of the stint, by the monotonic clock: no message begins later.
            settle: Settles the finished messages. It is called now and then, and soon after the
                first one: a handler may wait long, and must not hold back the commit of those
                before it. The caller settles the last ones.
        """
        task = asyncio.current_task()
        assert task is not None
        clock, seconds, none_is_failure = time.monotonic, self._seconds, self._none_is_failure
        deadlines, expired, finished = self._deadlines, self._expired, held.finished
        function, loop = registration.function, task.get_loop()
        stint_at = clock()
        call_count = failed_count = 0
        last: ReceivedMessage | None = None
        try:
            while (
                messages
                and (now := clock()) < ends_at
                and not (held.is_draining or held.is_dropped or held.is_paused)
            ):
                message = messages.popleft()
                self.begun_at = now
                deadlines[task] = now + seconds
                requests = task.cancelling()
                try:
                    returned = await function(message)
                except asyncio.CancelledError as error:
                    outcome = self._cancelled(error, task, requests, (message,))
                except Exception as error:  # the outermost frame of a handler
                    outcome = self._raised(error, (message,))
                else:
                    if returned is None and not none_is_failure:
                        outcome = SUCCEEDED
                    else:
                        outcome = self._returned(returned)
                if expired and self._took_too_long(task):
                    outcome = self.timed_out()
                call_count += 1
                last = message
                if outcome is not SUCCEEDED:
                    failed_count = outcome.kind is not HandleOutcome.SUCCESS
                    return message, outcome
                if not finished:
                    loop.call_soon(settle)
                finished.append(message)
                if len(finished) >= SETTLE_COUNT:
                    settle()
        finally:
            deadlines.pop(task, None)
            if last is not None:  # all have its topic: they have one handler
                seconds = clock() - stint_at
                self._tally(last.topic).add(call_count, call_count, failed_count, seconds)
        return None

    def move_tallies(self) -> None:
        """Move the tallies into the statistics."""
        with self._move_lock:
            now = time.monotonic()
            for topic, tally in tuple(self._tallies.items()):
                sums = tally.take()
                if sums.call_count:
                    self._statistics.add("handle", topic, self._group, sums)
                    self._own.add(*sums, now)

    def last_minute(self) -> CallWindow:
        """Return the calls of this consumer in the last minute."""
        self.move_tallies()
        with self._move_lock:
            return self._own.last_minute(time.monotonic())

    def longest_seconds(self) -> float:
        """Return for how long the oldest running call has been running; 0 if none is."""
        begun = [*self._begun.copy().values()]
        begun += [deadline - self._seconds for deadline in self._deadlines.copy().values()]
        return max(time.monotonic() - min(begun), 0.0) if begun else 0.0

    async def watch(self) -> None:
        """Cancel async handlers that exceed the time limit, and move tallies; runs for ever."""
        while True:
            await asyncio.sleep(min(self._seconds / LOOKS_PER_LIMIT, LOOK_SECONDS_MAX))
            self.move_tallies()
            now = time.monotonic()
            for task, deadline in self._deadlines.items():
                if deadline <= now and task not in self._expired:
                    self._expired.add(task)
                    task.cancel()

    def _took_too_long(self, task: asyncio.Task[Any]) -> bool:
        """Tell whether the task's handler was cancelled for its time; forget that it was."""
        if task not in self._expired:
            return False
        self._expired.remove(task)
        task.uncancel()
        return True

    def _account(
        self, messages: Sequence[ReceivedMessage], outcome: Outcome, begun_at: float
    ) -> None:
        count = len(messages)
        failed_count = 0 if outcome.kind is HandleOutcome.SUCCESS else count
        self._tally(messages[0].topic).add(1, count, failed_count, time.monotonic() - begun_at)

    def _tally(self, topic: str) -> Tally:
        tally = self._tallies.get(topic)
        return self._tallies.setdefault(topic, Tally()) if tally is None else tally

    def timed_out(self) -> Outcome:
        """Return the outcome of a batch that exceeded the time limit."""
        text = f"the handler took longer than {self._seconds:g} s"
        return Outcome(self._failed, "timed_out", text, HandleOutcome.TIME_OUT)

    def unhandled(self, message: ReceivedMessage) -> Outcome:
        """Return the outcome of a message that has no handler."""
        text = f"no handler is registered for topic {message.topic}"
        _logger.warning("%s: %r is sent back", text, message)
        return Outcome(self._failed, "unhandled", text)

    def _arguments(
        self,
        registration: Registration,
        messages: Sequence[ReceivedMessage],
        context: ConsumeContext | None,
    ) -> tuple[Any, ...]:
        what = list(messages) if self._takes_list else messages[0]
        return (what, context) if registration.takes_context else (what,)

    def _returned(self, returned: object) -> Outcome:
        if returned is None and not self._none_is_failure:
            return SUCCEEDED
        status = status_of(
            returned, is_orderly=self._is_orderly, none_is_failure=self._none_is_failure
        )
        if status is ConsumeStatus.SUCCESS:
            return SUCCEEDED
        if status is None:
            text = (
                f"the handler returned {text_of_value(returned)}, which is not a valid result here"
            )
            _logger.error("%s: it counts as a failure", text)
            return Outcome(self._failed, "failed", text)
        kind = HandleOutcome.FAILED
        if returned is None:
            kind = HandleOutcome.RETURNNULL
        elif status is ConsumeStatus.COMMIT:
            kind = HandleOutcome.SUCCESS
        return Outcome(status, "failed", f"the handler returned {returned}", kind)

    def _cancelled(
        self,
        error: asyncio.CancelledError,
        task: asyncio.Task[Any],
        requests: int,
        messages: Sequence[ReceivedMessage],
    ) -> Outcome:
        """Return the outcome of a cancelled handler; raise *error* if its task is cancelled.

        Args:
            error: Raised by the handler.
            task: The handler's.
            requests: Cancellations of the task before the handler began.
            messages: The handler's.
        """
        if task in self._expired:
            return self.timed_out()
        if task.cancelling() > requests:
            raise error
        return self._raised(error, messages)  # of something that the handler waited for

    def _raised(self, error: BaseException, messages: Sequence[ReceivedMessage]) -> Outcome:
        first = messages[0]
        more = f" and {len(messages) - 1} more" if len(messages) > 1 else ""
        limit = self._retries_max
        attempt = f"attempt {first.attempt}" + ("" if limit is None else f" of {limit + 1}")
        is_last = limit is not None and first.attempt > limit
        _logger.error(
            "the handler failed at message %s%s of %s, %s: %s",
            first.message_id,
            more,
            first.topic,
            attempt,
            "it becomes a dead letter" if is_last else self._what_next,
            exc_info=error,
        )
        text = text_of_error(error)
        return Outcome(self._failed, "failed", text, HandleOutcome.EXCEPTION, error)


def _what_next(settings: PushSettings) -> str:
    """Describe what happens to a failed message, as far as the consumer knows."""
    if settings.ordered:
        return f"retry in {settings.retries.suspend_seconds:g} s; its queue waits"
    if not settings.is_clustering:
        return "no retry, because the consumer is broadcasting"
    return "it will be redelivered after a delay; after the last retry it becomes a dead letter"


async def tell(listener: Listener | None, queues: list[MessageQueue]) -> None:
    """Call an assignment listener, if there is one and *queues* is not empty."""
    if listener is not None and queues:
        await _call_listener(listener, queues, "assignments")


async def tell_one(listener: Listener, message: ReceivedMessage) -> None:
    """Call the listener for damaged messages."""
    await _call_listener(listener, message, "damaged messages")


async def _call_listener(listener: Listener, argument: object, what: str) -> None:
    try:
        result = listener(argument)
        if inspect.isawaitable(result):
            await result
    except (Exception, asyncio.CancelledError) as error:  # the outermost frame of a listener
        if ends_caller(error):
            raise
        _logger.exception("the listener for %s failed", what)
