"""Use cases, one per file: the effects of a request on the store, without HTTP.

A processor raises the contract's errors and returns values; ``api`` turns HTTP into its calls.
"""
