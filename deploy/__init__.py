"""Running Eruca's services: today a local cluster on the loopback interface.

Nothing imports this package but the demo, the tests and the benchmarks. It talks to the services
as anyone would, by their settings, signals and HTTP.
"""
