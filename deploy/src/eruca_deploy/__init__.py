"""Run Eruca's services: today a local cluster on the loopback interface.

No service imports this package; the demonstration, the tests and the benchmarks do. It uses only
the services' public interfaces: settings, signals and HTTP.
"""
