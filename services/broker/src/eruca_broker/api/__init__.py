"""HTTP in, one call of a processor, HTTP out.

The hot routes (sending, pulling) are exchanges with msgspec; everything else is FastAPI.
"""
