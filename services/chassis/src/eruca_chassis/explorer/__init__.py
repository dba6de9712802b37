"""The docs explorer: ``/docs``, a page that shows services' OpenAPI documents and calls them.

Nothing on it comes from anywhere but the service and the services it shows. Swagger UI's files are
those in the package ``fastapi-offline``; the page, its script and its style are here.
"""
