"""The recall of a scheduled message: it is never delivered."""
