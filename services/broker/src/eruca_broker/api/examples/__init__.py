"""Examples of bodies and answers, for the OpenAPI document."""
