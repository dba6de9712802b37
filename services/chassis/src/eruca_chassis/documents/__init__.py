"""The OpenAPI document, and the declarations from which it is built."""
