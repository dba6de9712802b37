"""The code that Eruca's SQL projections share.

A service that keeps a projection of the brokers' logs in PostgreSQL needs four things. It needs a
server, by default an embedded one from a wheel, and a schema that is migrated at start. It needs
one writer per broker among all its instances. And it must write rows in the same transaction as
the log position they came from.
"""
