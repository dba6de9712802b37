"""One broker: its replicas, its in-sync set, and who became its master when."""
