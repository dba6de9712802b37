"""Interceptors: code of the program around every send, receive and handling.

An interceptor is for concerns that no handler should repeat: traces, metrics, audits, a context for
logging. It overrides the methods that it needs. Each returns a context manager, which is entered
before the call and left after it. Meanwhile the call object tells about the call; its result is set
before the context is left::

    class Audit(eruca.Interceptor):
        @contextmanager
        def handling(self, call: eruca.HandleCall) -> Iterator[None]:
            yield
            audit.write(call.group, len(call.messages), call.outcome)

    client = eruca.Client(interceptors=[Audit()])

* The first interceptor is the outermost one.
* An error in an interceptor is logged and has no other effect: it must not cost a message.
* A context of :meth:`Interceptor.handling` is entered and left where the handler runs, so context
  variables that it sets are visible in the handler. The context of a send may be left elsewhere.
* Plain functions run in threads: an interceptor is called by several threads at a time.

Source: RocketMQ 5.3, ``SendMessageHook``, ``ConsumeMessageHook``, ``ConsumeReturnType``.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from eruca.core.messages.message import Message
    from eruca.core.messages.received_message import ReceivedMessage
    from eruca.core.producing.send_result import SendResult

_NOTHING: Final = nullcontext()


class HandleOutcome(StrEnum):
    """The outcome of a handler's call, by RocketMQ's names."""

    SUCCESS = "SUCCESS"
    TIME_OUT = "TIME_OUT"  # it took longer than its time limit, or lost its lease
    EXCEPTION = "EXCEPTION"  # it raised
    RETURNNULL = "RETURNNULL"  # it returned None, and ``none_is_failure`` makes that a failure
    FAILED = "FAILED"  # it returned a failure, or a value that is no verdict


class SendCall:
    """One ``send``, ``submit``, ``send_oneway`` or ``send_many``, or one transaction's begin.

    Attributes:
        messages: The messages to send. An interceptor may replace them, one by one, before it
            yields: ``call.messages = [...]``.
        group: The producer group; None: the producer has none.
        is_transaction: Whether it stores a half message.
        results: The place of each message, once all of them are stored. Empty after a failure; a
            half message has none either.
        error: Why the send failed; None while it is under way, and after a success.
    """

    __slots__ = ("error", "group", "is_transaction", "messages", "results")

    def __init__(
        self, messages: Sequence[Message], group: str | None, *, is_transaction: bool = False
    ) -> None:
        self.messages = messages
        self.group = group
        self.is_transaction = is_transaction
        self.results: Sequence[SendResult] = ()
        self.error: BaseException | None = None


class ReceiveCall:
    """One ``poll`` of a pull consumer or one ``receive`` of a simple consumer.

    Attributes:
        group: The consumer group; None: the consumer has none.
        messages: The received messages, once there are any.
        error: Why it failed; None while it is under way, and after a success.
    """

    __slots__ = ("error", "group", "messages")

    def __init__(self, group: str | None) -> None:
        self.group = group
        self.messages: Sequence[ReceivedMessage] = ()
        self.error: BaseException | None = None


class HandleCall:
    """One call of a push consumer's handler, or one ``handling`` block of a simple consumer.

    Attributes:
        messages: The messages to handle.
        group: The consumer group.
        takes_list: Whether the handler gets a list, and not one message.
        outcome: The outcome; None until the call has ended, and for ever if it was cancelled.
        error: The exception that the handler raised.
        reason: Why it failed, in words.
    """

    __slots__ = ("error", "group", "messages", "outcome", "reason", "takes_list")

    def __init__(
        self, messages: Sequence[ReceivedMessage], group: str, *, takes_list: bool = False
    ) -> None:
        self.messages = messages
        self.group = group
        self.takes_list = takes_list
        self.outcome: HandleOutcome | None = None
        self.error: BaseException | None = None
        self.reason: str | None = None


class Interceptor:
    """Surrounds calls of a client's producers and consumers; override the methods you need.

    A method that is not overridden costs nothing.
    """

    def sending(self, call: SendCall) -> AbstractContextManager[object]:
        """Return a context for one send."""
        return _NOTHING

    def receiving(self, call: ReceiveCall) -> AbstractContextManager[object]:
        """Return a context for one receive; push consumers receive in the background, without."""
        return _NOTHING

    def handling(self, call: HandleCall) -> AbstractContextManager[object]:
        """Return a context for one call of a handler."""
        return _NOTHING


def overriding(interceptors: Sequence[Interceptor], method: str) -> tuple[Interceptor, ...]:
    """Return the interceptors that override *method*."""
    own = getattr(Interceptor, method)
    return tuple(one for one in interceptors if getattr(type(one), method) is not own)
