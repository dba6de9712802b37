"""The pure parts of the console: figures, lists, tables, texts to copy. No I/O, no clock."""
