"""Decoders of Avro and Protobuf bodies, which executors run.

This code travels to the executors of a cluster within their tasks. So it needs only the standard
library and pyarrow; Protobuf's module also needs the package protobuf.
"""
