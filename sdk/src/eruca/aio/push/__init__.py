"""The internals of the push consumer, :mod:`eruca.aio.push_consumer`.

States of a queue at a member, and the transitions between them::

    not ours ──allocated──► wanted ──lock granted──► held ──────► draining ──released──► not ours
                              ▲                        │   given up  │
                              └──────── lost ◄─────────┴─────────────┘
                                 session over, lock gone, broker restarted without it

=============  ==================================================================================
running        wires the parts together
membership     sessions: a heartbeat task per broker, joining, leaving
standby        a thread that renews the sessions while a handler blocks the event loop
members_watch  the group's members, as each topic's coordinator reports them
rebalancer     computes the queues to read, and moves to them
lock_keeper    requests locks at one broker until they are granted or not needed any more
reader         from the brokers to the runner, and offsets back
held_queue     one queue with a lock: its pulled and unfinished messages
calling        calls a handler and interprets its result
concurrent_runner, orderly_runner    choose the next batch, and process its result
ready_batches  the messages that wait for a handler of the concurrent runner
orderly_stint  messages in order, one after the other, committed together
send_backs     sends messages to the retry topic
commits        commits offsets at the brokers
broadcaster, offset_file    broadcasting: every queue, and offsets in a local file
url_book, background    brokers' URLs; background tasks whose errors end the consumer
=============  ==================================================================================

Invariants, which hold at every await:

1. A batch begins only while three things hold: this member holds its queue, its session is alive by
   this client's own clock, and no other member has requested the queue.
2. A commit never passes an unfinished message. A message is finished if it succeeded, was durably
   sent back, or is a durable dead letter.
3. A queue is released only when no handler has any of its messages. The same request commits its
   final offset. So its next owner starts where this one ended.
4. After a queue is lost, nothing is committed or sent back for it. The broker refuses requests that
   are still under way, because the lock's token has changed.

Failure cases:

- A heartbeat without an answer is retried every second while the session lives.
- A lock request without an answer may have been granted. It is retried until the answer is known,
  and locks that are not needed are released.
- A release or commit without an answer is retried.
- A message that could not be sent back is handled again after five seconds. Until then it holds
  back the committed offset.
- A handler that blocks the event loop stops everything except the sessions, up to
  ``consume_timeout_seconds``.

Concurrency rule: all of it belongs to one event loop. Handlers that are plain functions run in
threads. Another thread renews the sessions while the loop is blocked. Threads touch only the queue
of ready batches, under a lock, and numbers and flags that are stored atomically.
"""
