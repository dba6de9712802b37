"""Questions to the cluster, as the caller; nothing here knows a page."""
