"""Clients of the four services in other languages, generated from their OpenAPI documents.

Each generator's client is compiled for all four documents. The broker's client then sends, receives
and acknowledges one message at a running broker. ``make clients`` runs them all.
"""
