"""The machinery of the push consumer, :mod:`eruca.aio.push_consumer`.

States of a queue at a member, and what leads from one to the next::

    not ours ──allocated──► wanted ──lock granted──► held ──────► draining ──released──► not ours
                              ▲                        │   given up  │
                              └──────── lost ◄─────────┴─────────────┘
                                 session over, lock gone, broker restarted without it

=============  ==================================================================================
running        puts the parts together
membership     sessions: a heartbeat task per broker, joining, leaving
standby        a thread that renews the sessions while a handler blocks the event loop
members_watch  who is in the group, by the word of each topic's coordinator
rebalancer     what should be read, and the way from what is read to that
lock_keeper    asking for locks at one broker, until they are granted or not wanted any more
reader         from the brokers to the runner, and offsets back
held_queue     one queue that is held: what was pulled and is not done with
calling        calling a handler, and what its result means
concurrent_runner, orderly_runner    which batch is handed out when, and what becomes of it
send_backs     messages on their way to the retry topic
commits        committed offsets on their way to the brokers
broadcaster, offset_file    broadcasting: every queue, and offsets in a local file
url_book, background    where brokers are; tasks none of which dies unheard
=============  ==================================================================================

Invariants, which hold at every await:

1. A batch begins only while its queue is held, its session lives by this client's own clock, and
   nobody asked for the queue back.
2. What is committed never passes a message that is not done with: succeeded, sent back durably, or
   dead-lettered durably.
3. A queue is released once no handler has any of its messages in hand, with its final offset in the
   same request. So its next owner starts where this one ended.
4. From the moment a queue is lost nothing is committed or sent back for it. What is under way then
   is refused by the broker, because the lock's token has changed.

Failure cases: a heartbeat that is not answered is repeated every second while the session lives; a
lock request that is not answered may have been granted, so it is repeated until the answer is known
and what is not wanted is released; a release or commit that is not answered is repeated; a message
that could not be sent back is handled again after five seconds and holds the committed offset. A
handler that blocks the event loop stops everything but the sessions, up to
``consume_timeout_seconds``.

Concurrency rule: all of it belongs to one event loop. Handlers that are plain functions run in
threads, and one thread renews sessions that the loop has no time for; the only things threads touch
are the queue of ready batches, under a lock, and numbers and flags that are stored whole.
"""
