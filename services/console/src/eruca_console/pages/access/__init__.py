"""The rules that are in force, and the rule that decides a question."""
