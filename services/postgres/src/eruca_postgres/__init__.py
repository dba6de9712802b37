"""What Eruca's SQL projections share.

A service that keeps a projection of the brokers' logs in PostgreSQL needs the same few things: a
server (its own, from a wheel, where none is given), a schema that is brought up to date at start,
one writer per broker among all instances, and rows that are written in the same transaction as the
position in the log they came from.
"""
