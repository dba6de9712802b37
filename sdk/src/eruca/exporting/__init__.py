"""Topics as tables: which messages to read, where to continue, and their rows.

The command line, ``eruca.tables`` and Spark's data source use it. It needs only the standard
library and pyarrow, and imports nothing else of ours: Spark sends it to every executor, by value.
"""
