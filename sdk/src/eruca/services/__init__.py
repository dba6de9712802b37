"""The door by which services and deployment use the SDK's inner parts.

Programs have :mod:`eruca`. Services need more: requests that no public method makes, and their
refusals as errors. They import it from here and from nowhere inside ``eruca.aio``, so that its
rooms can be rebuilt without them:

- :mod:`eruca.services.http`: HTTP clients with their credentials, targets, problem errors;
- :mod:`eruca.services.cluster`: requests that are models, a broker's resources, its log.

The linter holds the door (``pyproject.toml``, the contracts of the services).
"""
