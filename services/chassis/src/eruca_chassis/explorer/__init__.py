"""The docs explorer: ``/docs``, a page that shows services' OpenAPI documents and calls them.

The page loads only from its service, and calls only the services that it shows. Swagger UI's files
come from the package ``fastapi-offline``; the page, its script and its style are here.
"""
