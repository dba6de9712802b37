"""Objects by path, in a folder or in an object store: the place of backups and of the tier."""
