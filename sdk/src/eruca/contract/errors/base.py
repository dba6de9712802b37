"""The root of the tree of errors, and helpers that build and walk it."""

from __future__ import annotations

import copyreg
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, TypedDict


class ProblemOptions(TypedDict, total=False):
    """The arguments that every error takes beside its own, as :class:`ErucaError` names them."""

    fix: str | None
    errors: Sequence[Mapping[str, str]]
    request_id: str | None
    retry_after_seconds: float | None


class ErucaError(Exception):
    """Base of every error of Eruca.

    Subclasses set ``code``, ``status``, ``title`` and ``default_fix``. A subclass has no
    ``default_fix`` if only the detail can say what to do.
    """

    code: ClassVar[str] = "error"
    status: ClassVar[int] = 500
    title: ClassVar[str] = "The request failed"
    retryable: ClassVar[bool] = False
    default_fix: ClassVar[str | None] = None

    def __init__(
        self,
        detail: str,
        *,
        fix: str | None = None,
        errors: Sequence[Mapping[str, str]] = (),
        request_id: str | None = None,
        retry_after_seconds: float | None = None,
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.fix = fix or self.default_fix
        self.errors = [dict(error) for error in errors]
        self.request_id = request_id
        self.retry_after_seconds = retry_after_seconds

    @classmethod
    def extension_members(cls, document: Mapping[str, Any]) -> dict[str, Any]:
        """Return the constructor's extra arguments from a problem document of this class.

        A subclass with extra arguments overrides this method and its inverse, :meth:`problem`.
        """
        return {}

    def problem(self, request_id: str | None = None) -> dict[str, Any]:
        """Return the problem document."""
        document: dict[str, Any] = {
            "type": f"/problems/{self.code}",
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
            "code": self.code,
            "request_id": request_id or self.request_id,
            "retryable": self.retryable,
            "fix": self.fix,
        }
        if self.errors:
            document["errors"] = self.errors
        return document

    @property
    def redirect_url(self) -> str | None:
        """URL of the server that answers the same request instead; None: there is none.

        A problem answer then has a ``Location`` header: the request's own target at this server.
        """
        return None

    def __str__(self) -> str:
        return f"{self.detail} ({self.fix})" if self.fix else self.detail

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickling rebuilds an exception from its positional arguments. Keyword arguments would be
        # lost on the way to another process, so the attributes are copied instead.
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


def errors_at(
    pointer: str, details: Mapping[int, str], *, member: str = ""
) -> list[dict[str, str]]:
    """Return ``errors`` for entries of a request's list.

    Args:
        pointer: JSON pointer to the list.
        details: The fault of each invalid entry, by its index.
        member: ``/name`` of the invalid member of each entry; empty: the whole entry is invalid.
    """
    return [
        {"pointer": f"{pointer}/{index}{member}", "detail": detail}
        for index, detail in details.items()
    ]


def every_error(root: type[ErucaError] = ErucaError) -> Iterator[type[ErucaError]]:
    """Yield the whole tree, parents first."""
    yield root
    for child in root.__subclasses__():
        yield from every_error(child)
