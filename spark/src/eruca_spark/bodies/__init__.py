"""Typed columns from bodies: JSON, Avro and Protobuf, and the rows that do not fit."""
