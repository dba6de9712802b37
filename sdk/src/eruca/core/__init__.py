"""Pure client logic: decisions without I/O, clock or randomness, each with its tests beside it.

The SDK's shells import it. A service may import it where server and client must decide alike.
"""
