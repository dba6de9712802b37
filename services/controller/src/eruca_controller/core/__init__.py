"""Pure decisions about rows: which change a row allows, and which version it then has."""
