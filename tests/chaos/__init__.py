"""Chaos: broker groups under load while processes, links, disks and clocks fail.

A run has five steps, each in a package of its own::

    cluster      replicas, controllers and name server as processes, a proxy on every link
    workloads    clients that write down each request and its answer (history.py)
    nemeses      faults, begun and healed by a seeded schedule
    final phase  everything heals; every queue and every log is read from every replica
    checkers     pure functions over the history, run afterwards

``make chaos ARGS="--minutes 60 --seed 7"`` runs it for long; the tests run it for a minute.
"""
