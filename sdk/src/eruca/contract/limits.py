"""The limits of the wire, each with its unit and its reason.

The API checks them, the core asserts them. Operational limits (memory, held requests, disk) are
settings of the service that owns them, not part of the contract.

Source: RocketMQ 5.3, ``Validators``, ``TopicValidator``, ``MessageStoreConfig``.
"""

from __future__ import annotations

from typing import Final

TOPIC_SIZE_MAX: Final = 127  # characters; more would need the V2 record, kept for retry topics
DERIVED_TOPIC_SIZE_MAX: Final = 255  # characters of a retry or dead-letter topic
GROUP_SIZE_MAX: Final = 120  # characters, so that its derived topics fit their own limit

BODY_SIZE_MAX: Final = 4 * 1024 * 1024  # bytes of one message's body, and of a batch's bodies
PROPERTIES_SIZE_MAX: Final = 32_747  # bytes: a signed short less the checksum's 20
USER_PROPERTY_COUNT_MAX: Final = 128  # names a user may set on one message
RECORDS_SIZE_MAX: Final = BODY_SIZE_MAX + 64 * 1024  # bytes of a batch's records, as RocketMQ
QUEUE_ID_MAX: Final = 2**31 - 1
BATCH_COUNT_MAX: Final = 8_192  # messages in one batch; bounds the broker's arrays
MESSAGE_ID_SIZE_MAX: Final = 255  # characters of a unique id; clients may choose their own
IDEMPOTENCY_KEY_SIZE_MAX: Final = 250  # characters; with a message's number it is a unique id
JSON_BODY_SIZE_MAX: Final = 6 * 1024 * 1024  # bytes of a request; base64 adds a third

QUEUE_COUNT_MAX: Final = 1_024  # queues of one topic on one broker
QUEUE_COUNT_DEFAULT: Final = 4  # RocketMQ's defaultTopicQueueNums

PULL_COUNT_MAX: Final = 8_192  # messages in one answer
PULL_COUNT_DEFAULT: Final = 32  # RocketMQ's pullBatchSize
PULL_SIZE_MAX: Final = 8 * 1024 * 1024  # bytes of records in one answer
PULL_SIZE_DEFAULT: Final = 1024 * 1024  # bytes; the first message is returned whatever its size
PULL_QUEUE_COUNT_MAX: Final = 256  # queues in one multi-queue pull
WAIT_SECONDS_MAX: Final = 30.0  # how long a request may be held

LOG_READ_SIZE_MAX: Final = 8 * 1024 * 1024  # bytes of log in one answer of the feed
LOG_READ_SIZE_DEFAULT: Final = 1024 * 1024

FILTER_SIZE_MAX: Final = 4_096  # characters of a filter
KEY_SIZE_MAX: Final = 4_096
"""Characters of a key or a tag, in a send and in a search.

A character takes up to four bytes, and a byte up to three characters of a URL. Such a URL still
fits into the 64 KiB of a request's head.
"""
CURSOR_SIZE_MAX: Final = 1_024  # characters of a cursor

CLIENT_ID_SIZE_MAX: Final = 255  # characters
INCARNATION_SIZE_MAX: Final = 64  # characters
SUBSCRIPTION_COUNT_MAX: Final = 256  # topics a member may subscribe to
GROUP_TOPIC_COUNT_MAX: Final = 4_096  # topics a group may ever have subscribed to on one broker
SESSION_SECONDS_MIN: Final = 3.0  # members send three heartbeats in a session
SESSION_SECONDS_DEFAULT: Final = 30.0  # a third of it is RocketMQ's heartbeat, every 10 s
SESSION_SECONDS_MAX: Final = 300.0  # a queue may go unread for so long after a crash
LOCK_COUNT_MAX: Final = 1_024  # queues in one request that takes, renews or releases locks
OFFSET_COUNT_MAX: Final = 1_024  # positions in one commit

RETRY_TIMES_DEFAULT: Final = 16  # RocketMQ's retryMaxTimes
RETRY_TIMES_MAX: Final = 1_000
RETRY_DELAY_COUNT_MAX: Final = 64  # delays a customized retry policy may list
DELAY_LEVEL_MAX: Final = 18  # RocketMQ's levels, 1 second to 2 hours
DELAY_SECONDS_MAX: Final = 40 * 86_400.0  # the most a broker may allow; its own limit may be lower
SEND_BACK_COUNT_MAX: Final = 1_024  # messages in one send-back
ERROR_TEXT_SIZE_MAX: Final = 1_024  # bytes kept of a handler's error text; the rest is truncated
REDRIVE_COUNT_MAX: Final = 100  # dead letters in one redrive; also bounds the work of one search

DELIVERY_COUNT_MAX: Final = 32  # messages in one answer of deliveries, RocketMQ's popBatchNums
INVISIBLE_SECONDS_MIN: Final = 1.0
INVISIBLE_SECONDS_DEFAULT: Final = 60.0  # RocketMQ's popInvisibleTime
INVISIBLE_SECONDS_MAX: Final = 12 * 3_600.0  # as RocketMQ's proxy allows
HANDLE_COUNT_MAX: Final = 1_024  # handles in one request
HANDLE_SIZE_MAX: Final = 1_024  # characters; the longest names allowed need about 780

TRANSACTION_ID_SIZE_MAX: Final = MESSAGE_ID_SIZE_MAX  # characters; it is a unique id
SHARED_TRANSACTION_COUNT_MAX: Final = 256  # in one request; bounds a turn of the event loop
CHECK_IMMUNITY_SECONDS_MAX: Final = 72 * 3_600.0  # RocketMQ stops checking after that time
CHECK_COUNT_MAX: Final = 100  # checks one transaction may have; RocketMQ's default is 15
CHECKER_SIZE_MAX: Final = 128  # characters of a checker's name, and of a check's id
CHECKS_TAKEN_MAX: Final = 32  # checks in one answer to a producer
REASON_SIZE_MAX: Final = 1_024  # characters of a decision's reason
WEBHOOK_URL_SIZE_MAX: Final = 2_048  # characters
WEBHOOK_SECRET_SIZE_MIN: Final = 24  # characters; fewer could be guessed
WEBHOOK_SECRET_SIZE_MAX: Final = 256
WEBHOOK_TIMEOUT_SECONDS_DEFAULT: Final = 5.0
WEBHOOK_TIMEOUT_SECONDS_MAX: Final = 30.0

LIST_LIMIT_MAX: Final = 1_000  # items in one page of a list
LIST_LIMIT_DEFAULT: Final = 100

KEY_QUERY_COUNT_MAX: Final = 64  # messages one key look-up returns; RocketMQ's maxMsgsNumBatch

ORDERED_BROKER_COUNT_MAX: Final = 10_000  # brokers in the table of ordered topics
ORDER_BROKER_COUNT_MAX: Final = 64  # brokers over which an ordered topic divides its keys
BROKER_TOPIC_COUNT_MAX: Final = 100_000  # topics that one broker can register

HEARTBEAT_SECONDS_DEFAULT: Final = 5.0  # between two registrations at a name server
REGISTRATION_SECONDS_MAX: Final = 5.0  # timeout of one registration
SETTLE_SECONDS_DEFAULT: Final = HEARTBEAT_SECONDS_DEFAULT + REGISTRATION_SECONDS_MAX + 2.0
"""Time after a name server's start in which a broker or a service may still register.

A registration may have begun just before the start, and run into its timeout. The next one follows
a heartbeat later. The rest is for the duration of that registration."""

KV_NAME_SIZE_MAX: Final = 255  # characters of a namespace or key at the name server
KV_VALUE_SIZE_MAX: Final = 64 * 1024  # characters of a value

EXPORT_PARTITION_ROWS_DEFAULT: Final = 500_000  # messages; a Spark task of fewer is mostly start-up
EXPORT_ROWS_MAX: Final = 5_000_000  # messages in one answer; resuming a longer stream costs more
EXPORT_RANGE_COUNT_MAX: Final = 256  # ranges in one request: its URL has to fit
EXPORT_PARTITION_COUNT_MAX: Final = 10_000  # partitions of one plan
EXPORT_QUEUE_COUNT_MAX: Final = 16_384  # queues of one plan
EXPORT_START_SIZE_MAX: Final = 32 * 1024  # characters of a plan's start positions

REPLICA_COUNT_MAX: Final = 16  # replicas of one broker group; a master writes to each of them
STORE_UID_SIZE_MAX: Final = 64  # characters of the random text that identifies a store
CHANGE_AUTHOR_SIZE_MAX: Final = 255  # characters of the name of a change's author
GROUP_WAIT_SECONDS_MAX: Final = 60.0  # how long a request for a broker group may be held
FORMER_STORE_HOST_COUNT_MAX: Final = 256  # addresses at which a broker group once wrote records
