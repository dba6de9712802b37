"""Running Eruca's services: today a local cluster on the loopback interface.

No service imports this package; the demonstration, the tests and the benchmarks do. It talks to the
services as anyone would, by their settings, signals and HTTP.
"""
