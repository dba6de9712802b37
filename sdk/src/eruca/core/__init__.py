"""Pure client logic: decisions without I/O, clock or randomness, each with its tests beside it.

Imported by the SDK's shells; a service may import it where server and client must decide alike.
"""
