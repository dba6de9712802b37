"""The broker's state: control records, the folds over them, and snapshots."""
