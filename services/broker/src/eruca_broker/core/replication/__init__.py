"""Replication: the decisions of a broker group that has several copies of one log.

A **broker group** is all replicas of one broker name. One replica is the master: it alone appends.
The others pull its log byte for byte. The **in-sync set** is a subset of the replicas, the master
included, and stands with the **epoch** in one row of the arbiter, which changes only by
compare-and-set. Three rules carry everything else::

    confirm     a record is visible and acknowledged once every member of the in-sync set holds it
                as durably as the group promises
    elect       only a member of the in-sync set becomes master, and each time in a new epoch
    truncate    a replica cuts its log to the last record that it has in common with the master's,
                found by the epochs in both logs, and never by a confirmed offset

So a new master has every acknowledged record, whichever member it is.

The rooms, each pure: no clock, no I/O, no randomness::

    broker_group.py     the arbiter's row, and the changes that a replica may ask for
    epochs.py           the epochs of a log, and where each began
    lineage.py          the common part of two logs
    in_sync.py          the master's knowledge of the copies, and the confirmed offset
    master_lease.py     the time in which no other replica can be master
    roles.py            the role of a replica, and the decisions that change it

``tests/unit/broker/core/replication/test_small_worlds.py`` searches all interleavings of small
groups for a broken promise, and finds one for each rule that is left out.

Source: PacificA (Microsoft Research, MSR-TR-2008-142); Kafka's KIP-101, KIP-320, KIP-903, KIP-966;
RocketMQ 5.3, ``AutoSwitchHAService``, ``EpochFileCache``.
"""
