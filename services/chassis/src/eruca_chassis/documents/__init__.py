"""The OpenAPI document, finished."""
