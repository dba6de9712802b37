"""HTTP in, one call of a processor, HTTP out.

Each resource has a module or a folder. Its hot routes (:mod:`eruca_chassis.routes.hot_router`) are
beside its ordinary ones, which are FastAPI's.
"""
