"""The interface through which services and deployment use the SDK's internal modules.

Programs use :mod:`eruca`. Services need more: requests that no public method makes, and their
refusals as errors. They import these from here, and nothing from ``eruca.aio``. So the packages in
it can change without changes in the services:

- :mod:`eruca.services.http`: HTTP clients with their credentials, targets, problem errors;
- :mod:`eruca.services.cluster`: requests that are models, a broker's resources, its log.

The linter enforces this (``pyproject.toml``, the contracts of the services).
"""
