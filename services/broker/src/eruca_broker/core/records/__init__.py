"""What a message is as a record, and what a record becomes: waiting, sent back, shown."""
