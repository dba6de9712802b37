"""Workloads: the clients of a run. Each is a coroutine that ends when the run is over."""
