"""The clients of ``make peers``: each is a process that runs workloads when asked."""
