"""Use cases, one per file: what a request does to the store, without a word of HTTP.

A processor raises the contract's errors and returns values; ``api`` turns HTTP into its calls.
"""
