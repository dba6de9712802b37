"""The wire: formats, models, names, limits and errors that both sides of a connection share.

Data and limits only: no I/O, no clock, no randomness. Imported by every service and by the SDK.
"""
