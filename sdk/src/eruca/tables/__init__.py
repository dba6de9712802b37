"""Tables of exported messages, in Delta Lake or Apache Iceberg: each batch is one commit.

The table is the only record of progress. A commit's properties say where the next batch begins. So
rows and progress become visible together or not at all. A batch is committed only if the last batch
is still the one that it continues: a second exporter is refused, whatever other writers do.

Requires the extra ``tables`` (deltalake, pyiceberg, pyarrow).
"""
