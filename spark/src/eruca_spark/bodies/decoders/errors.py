"""Faults of bodies, and of the schemas that describe them."""

from __future__ import annotations


class BodyError(Exception):
    """A body does not fit its schema; the text is the reason that its row keeps."""

    def __init__(self, text: str, path: tuple[str, ...] = ()) -> None:
        super().__init__(text, path)  # both, because exceptions are pickled by their arguments
        self.text = text
        self.path = path

    def __str__(self) -> str:
        return f"field {'.'.join(self.path)}: {self.text}" if self.path else self.text

    def within(self, name: str) -> BodyError:
        """Return the error as one of a field *name* that contains its place."""
        return BodyError(self.text, (name, *self.path))


class DescriptionError(Exception):
    """A schema or a descriptor is invalid; the text names place, value and fix."""
