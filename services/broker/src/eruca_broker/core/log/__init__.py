"""The log's life: what a stretch of it holds, whether it still does, and when it goes."""
