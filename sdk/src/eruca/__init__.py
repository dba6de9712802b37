"""Eruca: RocketMQ's model over HTTP. What is here is the SDK's public surface, and only that.

::

    async with eruca.AsyncClient() as client, client.producer() as producer:
        result = await producer.send(eruca.Message("orders", "paid", keys="order-7"))

The same without async is ``eruca.Client``. Importing the package only defines names: each is loaded
when it is first used, so that the services, which need nothing but the contract, load nothing else.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from eruca.aio.admin import AsyncAdmin as AsyncAdmin
    from eruca.aio.client import AsyncClient as AsyncClient
    from eruca.aio.dead_letters import HeldDeadLetter as HeldDeadLetter
    from eruca.aio.dead_letters import Redriven as Redriven
    from eruca.aio.dead_letters import RedriveStep as RedriveStep
    from eruca.aio.dead_letters import RedriveSummary as RedriveSummary
    from eruca.aio.group_admin import AsyncGroupAdmin as AsyncGroupAdmin
    from eruca.aio.group_admin import GroupLag as GroupLag
    from eruca.aio.handling import AsyncHandling as AsyncHandling
    from eruca.aio.log_follower import AsyncLogFollower as AsyncLogFollower
    from eruca.aio.producer import AsyncProducer as AsyncProducer
    from eruca.aio.pull_consumer import AsyncPullConsumer as AsyncPullConsumer
    from eruca.aio.push_consumer import AsyncPushConsumer as AsyncPushConsumer
    from eruca.aio.query import AsyncQuery as AsyncQuery
    from eruca.aio.scheduled import HeldScheduled as HeldScheduled
    from eruca.aio.simple_consumer import AsyncSimpleConsumer as AsyncSimpleConsumer
    from eruca.aio.stop_signals import stop_on_signals as stop_on_signals
    from eruca.aio.transaction_admin import AsyncTransactionAdmin as AsyncTransactionAdmin
    from eruca.aio.transaction_producer import AsyncTransaction as AsyncTransaction
    from eruca.aio.transaction_producer import AsyncTransactionProducer as AsyncTransactionProducer
    from eruca.contract.errors import AlreadyDecidedError as AlreadyDecidedError
    from eruca.contract.errors import AlreadyDeliveredError as AlreadyDeliveredError
    from eruca.contract.errors import BrokerNotFoundError as BrokerNotFoundError
    from eruca.contract.errors import ClientError as ClientError
    from eruca.contract.errors import ClientIdInUseError as ClientIdInUseError
    from eruca.contract.errors import ClosedError as ClosedError
    from eruca.contract.errors import ConflictError as ConflictError
    from eruca.contract.errors import DamagedMessageError as DamagedMessageError
    from eruca.contract.errors import DeadLetterNotFoundError as DeadLetterNotFoundError
    from eruca.contract.errors import DerivedTopicError as DerivedTopicError
    from eruca.contract.errors import ErucaError as ErucaError
    from eruca.contract.errors import ExpiredHandleError as ExpiredHandleError
    from eruca.contract.errors import FilterSyntaxError as FilterSyntaxError
    from eruca.contract.errors import GroupNotFoundError as GroupNotFoundError
    from eruca.contract.errors import IdempotencyKeyReusedError as IdempotencyKeyReusedError
    from eruca.contract.errors import KeyNotFoundError as KeyNotFoundError
    from eruca.contract.errors import MessageNotFoundError as MessageNotFoundError
    from eruca.contract.errors import NameServerSettlingError as NameServerSettlingError
    from eruca.contract.errors import NameServersUnreachableError as NameServersUnreachableError
    from eruca.contract.errors import NoCommittedOffsetError as NoCommittedOffsetError
    from eruca.contract.errors import NoLiveBrokerError as NoLiveBrokerError
    from eruca.contract.errors import NoRouteError as NoRouteError
    from eruca.contract.errors import NotFoundError as NotFoundError
    from eruca.contract.errors import OffsetOutOfRangeError as OffsetOutOfRangeError
    from eruca.contract.errors import OverloadedError as OverloadedError
    from eruca.contract.errors import PartialSendError as PartialSendError
    from eruca.contract.errors import PermissionDeniedError as PermissionDeniedError
    from eruca.contract.errors import RecordNotFoundError as RecordNotFoundError
    from eruca.contract.errors import RefusedError as RefusedError
    from eruca.contract.errors import RequestError as RequestError
    from eruca.contract.errors import ScheduledNotFoundError as ScheduledNotFoundError
    from eruca.contract.errors import SearchIncompleteError as SearchIncompleteError
    from eruca.contract.errors import SendFailedError as SendFailedError
    from eruca.contract.errors import StaleHandleError as StaleHandleError
    from eruca.contract.errors import SubscriptionConflictError as SubscriptionConflictError
    from eruca.contract.errors import SystemTopicError as SystemTopicError
    from eruca.contract.errors import TimeoutExpiredError as TimeoutExpiredError
    from eruca.contract.errors import TooLargeError as TooLargeError
    from eruca.contract.errors import TopicNotFoundError as TopicNotFoundError
    from eruca.contract.errors import TransactionNotFoundError as TransactionNotFoundError
    from eruca.contract.errors import TransportError as TransportError
    from eruca.contract.errors import UnavailableError as UnavailableError
    from eruca.contract.errors import ValidationError as ValidationError
    from eruca.contract.groups import CommittedOffset as CommittedOffset
    from eruca.contract.groups import CustomizedRetryPolicy as CustomizedRetryPolicy
    from eruca.contract.groups import ExponentialRetryPolicy as ExponentialRetryPolicy
    from eruca.contract.groups import GroupConfig as GroupConfig
    from eruca.contract.groups import MemberList as MemberList
    from eruca.contract.groups import QueueReset as QueueReset
    from eruca.contract.messages import LogRecordView as LogRecordView
    from eruca.contract.messages import PulledMessage as PulledMessage
    from eruca.contract.queries import MessageFound as MessageFound
    from eruca.contract.queries import MessagePage as MessagePage
    from eruca.contract.queries import QueryStatus as QueryStatus
    from eruca.contract.queries import Timeline as Timeline
    from eruca.contract.recall_handles import RecallHandle as RecallHandle
    from eruca.contract.retries import DeadLetterDetail as DeadLetterDetail
    from eruca.contract.routes import BrokerGroup as BrokerGroup
    from eruca.contract.routes import TopicRoute as TopicRoute
    from eruca.contract.status import BrokerStatus as BrokerStatus
    from eruca.contract.status import NamesrvStatus as NamesrvStatus
    from eruca.contract.topics import QueueOffsets as QueueOffsets
    from eruca.contract.topics import TopicConfig as TopicConfig
    from eruca.contract.topics import TopicSettings as TopicSettings
    from eruca.contract.transactions import DecisionReceipt as DecisionReceipt
    from eruca.contract.transactions import TransactionDetail as TransactionDetail
    from eruca.contract.transactions import TransactionSummary as TransactionSummary
    from eruca.core.allocation import AllocationStrategy as AllocationStrategy
    from eruca.core.allocation import Averagely as Averagely
    from eruca.core.allocation import AveragelyByCircle as AveragelyByCircle
    from eruca.core.allocation import ByConfig as ByConfig
    from eruca.core.allocation import ByMachineRoom as ByMachineRoom
    from eruca.core.allocation import ConsistentHash as ConsistentHash
    from eruca.core.allocation import MachineRoomNearby as MachineRoomNearby
    from eruca.core.client_settings import ClientSettings as ClientSettings
    from eruca.core.consuming.consume_context import ConsumeContext as ConsumeContext
    from eruca.core.consuming.consume_status import ConsumeStatus as ConsumeStatus
    from eruca.core.consuming.delivery import Delivery as Delivery
    from eruca.core.consuming.handler_shape import Handler as Handler
    from eruca.core.consuming.push_options import Limits as Limits
    from eruca.core.consuming.push_options import Listeners as Listeners
    from eruca.core.consuming.push_options import Membership as Membership
    from eruca.core.consuming.push_options import Offsets as Offsets
    from eruca.core.consuming.push_options import Retries as Retries
    from eruca.core.filters.sql92 import Sql92Filter as Sql92Filter
    from eruca.core.filters.subscription_filter import sql as sql
    from eruca.core.messages.log_block import LogBlock as LogBlock
    from eruca.core.messages.log_block import LogRecord as LogRecord
    from eruca.core.messages.message import Message as Message
    from eruca.core.messages.message_queue import MessageQueue as MessageQueue
    from eruca.core.messages.received_message import ReceivedMessage as ReceivedMessage
    from eruca.core.producing.batching import Batching as Batching
    from eruca.core.producing.send_result import SendResult as SendResult
    from eruca.core.producing.send_result import SendResults as SendResults
    from eruca.core.producing.transactions import HalfMessage as HalfMessage
    from eruca.core.producing.transactions import TransactionCheck as TransactionCheck
    from eruca.core.producing.transactions import TransactionResult as TransactionResult
    from eruca.core.producing.transactions import Verdict as Verdict
    from eruca.core.routing.latency_fault import BrokerHealth as BrokerHealth
    from eruca.core.routing.latency_fault import LatencyProfile as LatencyProfile
    from eruca.core.routing.selectors import by_hash as by_hash
    from eruca.core.routing.selectors import by_machine_room as by_machine_room
    from eruca.core.routing.selectors import by_random as by_random
    from eruca.sync.admin import Admin as Admin
    from eruca.sync.client import Client as Client
    from eruca.sync.group_admin import GroupAdmin as GroupAdmin
    from eruca.sync.handling import Handling as Handling
    from eruca.sync.log_follower import LogFollower as LogFollower
    from eruca.sync.producer import Producer as Producer
    from eruca.sync.pull_consumer import PullConsumer as PullConsumer
    from eruca.sync.push_consumer import PushConsumer as PushConsumer
    from eruca.sync.query import Query as Query
    from eruca.sync.simple_consumer import SimpleConsumer as SimpleConsumer
    from eruca.sync.transaction_admin import TransactionAdmin as TransactionAdmin
    from eruca.sync.transaction_producer import Transaction as Transaction
    from eruca.sync.transaction_producer import TransactionProducer as TransactionProducer

_ERRORS: Final = (
    "AlreadyDecidedError",
    "AlreadyDeliveredError",
    "BrokerNotFoundError",
    "ClientError",
    "ClientIdInUseError",
    "ClosedError",
    "ConflictError",
    "DamagedMessageError",
    "DeadLetterNotFoundError",
    "DerivedTopicError",
    "ErucaError",
    "ExpiredHandleError",
    "FilterSyntaxError",
    "GroupNotFoundError",
    "IdempotencyKeyReusedError",
    "KeyNotFoundError",
    "MessageNotFoundError",
    "NameServerSettlingError",
    "NameServersUnreachableError",
    "NoCommittedOffsetError",
    "NoLiveBrokerError",
    "NoRouteError",
    "NotFoundError",
    "OffsetOutOfRangeError",
    "OverloadedError",
    "PartialSendError",
    "PermissionDeniedError",
    "RecordNotFoundError",
    "RefusedError",
    "RequestError",
    "ScheduledNotFoundError",
    "SearchIncompleteError",
    "SendFailedError",
    "StaleHandleError",
    "SubscriptionConflictError",
    "SystemTopicError",
    "TimeoutExpiredError",
    "TooLargeError",
    "TopicNotFoundError",
    "TransactionNotFoundError",
    "TransportError",
    "UnavailableError",
    "ValidationError",
)
_HOMES: Final = dict.fromkeys(_ERRORS, "eruca.contract.errors") | {
    "Admin": "eruca.sync.admin",
    "AllocationStrategy": "eruca.core.allocation",
    "AsyncAdmin": "eruca.aio.admin",
    "AsyncClient": "eruca.aio.client",
    "AsyncGroupAdmin": "eruca.aio.group_admin",
    "AsyncHandling": "eruca.aio.handling",
    "AsyncLogFollower": "eruca.aio.log_follower",
    "AsyncProducer": "eruca.aio.producer",
    "AsyncPullConsumer": "eruca.aio.pull_consumer",
    "AsyncPushConsumer": "eruca.aio.push_consumer",
    "AsyncQuery": "eruca.aio.query",
    "AsyncSimpleConsumer": "eruca.aio.simple_consumer",
    "AsyncTransaction": "eruca.aio.transaction_producer",
    "AsyncTransactionAdmin": "eruca.aio.transaction_admin",
    "AsyncTransactionProducer": "eruca.aio.transaction_producer",
    "Averagely": "eruca.core.allocation",
    "AveragelyByCircle": "eruca.core.allocation",
    "Batching": "eruca.core.producing.batching",
    "BrokerGroup": "eruca.contract.routes",
    "BrokerHealth": "eruca.core.routing.latency_fault",
    "BrokerStatus": "eruca.contract.status",
    "ByConfig": "eruca.core.allocation",
    "ByMachineRoom": "eruca.core.allocation",
    "Client": "eruca.sync.client",
    "ClientSettings": "eruca.core.client_settings",
    "CommittedOffset": "eruca.contract.groups",
    "ConsistentHash": "eruca.core.allocation",
    "ConsumeContext": "eruca.core.consuming.consume_context",
    "ConsumeStatus": "eruca.core.consuming.consume_status",
    "CustomizedRetryPolicy": "eruca.contract.groups",
    "DeadLetterDetail": "eruca.contract.retries",
    "DecisionReceipt": "eruca.contract.transactions",
    "Delivery": "eruca.core.consuming.delivery",
    "ExponentialRetryPolicy": "eruca.contract.groups",
    "GroupAdmin": "eruca.sync.group_admin",
    "GroupConfig": "eruca.contract.groups",
    "GroupLag": "eruca.aio.group_admin",
    "HalfMessage": "eruca.core.producing.transactions",
    "Handler": "eruca.core.consuming.handler_shape",
    "Handling": "eruca.sync.handling",
    "HeldDeadLetter": "eruca.aio.dead_letters",
    "HeldScheduled": "eruca.aio.scheduled",
    "LatencyProfile": "eruca.core.routing.latency_fault",
    "Limits": "eruca.core.consuming.push_options",
    "Listeners": "eruca.core.consuming.push_options",
    "LogBlock": "eruca.core.messages.log_block",
    "LogFollower": "eruca.sync.log_follower",
    "LogRecord": "eruca.core.messages.log_block",
    "LogRecordView": "eruca.contract.messages",
    "MachineRoomNearby": "eruca.core.allocation",
    "MemberList": "eruca.contract.groups",
    "Membership": "eruca.core.consuming.push_options",
    "Message": "eruca.core.messages.message",
    "MessageFound": "eruca.contract.queries",
    "MessagePage": "eruca.contract.queries",
    "MessageQueue": "eruca.core.messages.message_queue",
    "NamesrvStatus": "eruca.contract.status",
    "Offsets": "eruca.core.consuming.push_options",
    "Producer": "eruca.sync.producer",
    "PullConsumer": "eruca.sync.pull_consumer",
    "PulledMessage": "eruca.contract.messages",
    "PushConsumer": "eruca.sync.push_consumer",
    "Query": "eruca.sync.query",
    "QueryStatus": "eruca.contract.queries",
    "QueueOffsets": "eruca.contract.topics",
    "QueueReset": "eruca.contract.groups",
    "RecallHandle": "eruca.contract.recall_handles",
    "ReceivedMessage": "eruca.core.messages.received_message",
    "RedriveStep": "eruca.aio.dead_letters",
    "RedriveSummary": "eruca.aio.dead_letters",
    "Redriven": "eruca.aio.dead_letters",
    "Retries": "eruca.core.consuming.push_options",
    "SendResult": "eruca.core.producing.send_result",
    "SendResults": "eruca.core.producing.send_result",
    "SimpleConsumer": "eruca.sync.simple_consumer",
    "Sql92Filter": "eruca.core.filters.sql92",
    "Timeline": "eruca.contract.queries",
    "TopicConfig": "eruca.contract.topics",
    "TopicRoute": "eruca.contract.routes",
    "TopicSettings": "eruca.contract.topics",
    "Transaction": "eruca.sync.transaction_producer",
    "TransactionAdmin": "eruca.sync.transaction_admin",
    "TransactionCheck": "eruca.core.producing.transactions",
    "TransactionDetail": "eruca.contract.transactions",
    "TransactionProducer": "eruca.sync.transaction_producer",
    "TransactionResult": "eruca.core.producing.transactions",
    "TransactionSummary": "eruca.contract.transactions",
    "Verdict": "eruca.core.producing.transactions",
    "by_hash": "eruca.core.routing.selectors",
    "by_machine_room": "eruca.core.routing.selectors",
    "by_random": "eruca.core.routing.selectors",
    "sql": "eruca.core.filters.subscription_filter",
    "stop_on_signals": "eruca.aio.stop_signals",
}

# Spelled out, because type checkers read it; a test keeps it equal to the table.
__all__ = [
    "Admin",
    "AllocationStrategy",
    "AlreadyDecidedError",
    "AlreadyDeliveredError",
    "AsyncAdmin",
    "AsyncClient",
    "AsyncGroupAdmin",
    "AsyncHandling",
    "AsyncLogFollower",
    "AsyncProducer",
    "AsyncPullConsumer",
    "AsyncPushConsumer",
    "AsyncQuery",
    "AsyncSimpleConsumer",
    "AsyncTransaction",
    "AsyncTransactionAdmin",
    "AsyncTransactionProducer",
    "Averagely",
    "AveragelyByCircle",
    "Batching",
    "BrokerGroup",
    "BrokerHealth",
    "BrokerNotFoundError",
    "BrokerStatus",
    "ByConfig",
    "ByMachineRoom",
    "Client",
    "ClientError",
    "ClientIdInUseError",
    "ClientSettings",
    "ClosedError",
    "CommittedOffset",
    "ConflictError",
    "ConsistentHash",
    "ConsumeContext",
    "ConsumeStatus",
    "CustomizedRetryPolicy",
    "DamagedMessageError",
    "DeadLetterDetail",
    "DeadLetterNotFoundError",
    "DecisionReceipt",
    "Delivery",
    "DerivedTopicError",
    "ErucaError",
    "ExpiredHandleError",
    "ExponentialRetryPolicy",
    "FilterSyntaxError",
    "GroupAdmin",
    "GroupConfig",
    "GroupLag",
    "GroupNotFoundError",
    "HalfMessage",
    "Handler",
    "Handling",
    "HeldDeadLetter",
    "HeldScheduled",
    "IdempotencyKeyReusedError",
    "KeyNotFoundError",
    "LatencyProfile",
    "Limits",
    "Listeners",
    "LogBlock",
    "LogFollower",
    "LogRecord",
    "LogRecordView",
    "MachineRoomNearby",
    "MemberList",
    "Membership",
    "Message",
    "MessageFound",
    "MessageNotFoundError",
    "MessagePage",
    "MessageQueue",
    "NameServerSettlingError",
    "NameServersUnreachableError",
    "NamesrvStatus",
    "NoCommittedOffsetError",
    "NoLiveBrokerError",
    "NoRouteError",
    "NotFoundError",
    "OffsetOutOfRangeError",
    "Offsets",
    "OverloadedError",
    "PartialSendError",
    "PermissionDeniedError",
    "Producer",
    "PullConsumer",
    "PulledMessage",
    "PushConsumer",
    "Query",
    "QueryStatus",
    "QueueOffsets",
    "QueueReset",
    "RecallHandle",
    "ReceivedMessage",
    "RecordNotFoundError",
    "RedriveStep",
    "RedriveSummary",
    "Redriven",
    "RefusedError",
    "RequestError",
    "Retries",
    "ScheduledNotFoundError",
    "SearchIncompleteError",
    "SendFailedError",
    "SendResult",
    "SendResults",
    "SimpleConsumer",
    "Sql92Filter",
    "StaleHandleError",
    "SubscriptionConflictError",
    "SystemTopicError",
    "Timeline",
    "TimeoutExpiredError",
    "TooLargeError",
    "TopicConfig",
    "TopicNotFoundError",
    "TopicRoute",
    "TopicSettings",
    "Transaction",
    "TransactionAdmin",
    "TransactionCheck",
    "TransactionDetail",
    "TransactionNotFoundError",
    "TransactionProducer",
    "TransactionResult",
    "TransactionSummary",
    "TransportError",
    "UnavailableError",
    "ValidationError",
    "Verdict",
    "by_hash",
    "by_machine_room",
    "by_random",
    "sql",
    "stop_on_signals",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(home), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
