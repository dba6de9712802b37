"""The part of a log that is in an object store, and reads from there; see DESIGN.md."""
