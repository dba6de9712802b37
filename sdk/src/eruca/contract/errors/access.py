"""Errors of a caller that the service does not know, or that lacks a right (401, 403).

They are a branch of their own because they are about the caller and not about the request: nothing
of the request has been done, and the same request succeeds once a key, a token or a rule is right.
So background work of a client pauses and tries again, while a call raises at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self, Unpack

from eruca.contract.errors.base import ErucaError, ProblemOptions


class AccessError(ErucaError):
    """Base of the errors of a caller; nothing of the request has been done."""

    code = "access"
    status = 403
    title = "The caller may not do this"


class UnauthenticatedError(AccessError):
    """The request carries no valid credentials, and the service requires some."""

    code = "unauthenticated"
    status = 401
    title = "The request carries no valid credentials"
    default_fix = (
        "send an API key: Authorization: Bearer KEY, or as the password of Basic authentication; "
        "Eruca's programs take one from ERUCA_API_KEY_FILE"
    )


class ForbiddenError(AccessError):
    """The rules do not give the caller the right that the request needs; the fix names it.

    ``rights`` are those of which one is missing, ``resource`` is that on which it is missing, and
    ``principal`` the caller.
    """

    code = "forbidden"
    status = 403
    title = "The caller lacks the right that the request needs"
    default_fix = "grant the right that the detail names"

    def __init__(
        self,
        detail: str,
        *,
        rights: Sequence[str] = (),
        resource: str = "",
        principal: str = "",
        **options: Unpack[ProblemOptions],
    ) -> None:
        super().__init__(detail, **options)
        self.rights = tuple(rights)
        self.resource = resource
        self.principal = principal

    @classmethod
    def of(cls, rights: Sequence[str], resource: str, principal: str) -> Self:
        """Return the error of *principal*, which has none of *rights* on *resource*."""
        either = " or ".join(rights)
        return cls(
            f"{principal} has no right to {either} on {resource}",
            rights=rights,
            resource=resource,
            principal=principal,
            fix=f"grant {either} on {resource} to {principal}",
        )

    def narrowed(self, right: str) -> ForbiddenError:
        """Return the error for a caller that needs *right* in the end: its fix names no other.

        To look a topic up, any right on it is enough. But who looks it up in order to send needs
        the right to send.
        """
        if right not in self.rights or len(self.rights) == 1:
            return self
        error = type(self).of([right], self.resource, self.principal)
        error.request_id = self.request_id
        return error

    @classmethod
    def extension_members(cls, document: Mapping[str, Any]) -> dict[str, Any]:
        """Return rights, resource and principal, if the document contains them."""
        rights = document.get("rights")
        texts = {name: document.get(name) for name in ("resource", "principal")}
        if not isinstance(rights, list) or not all(isinstance(r, str) for r in rights):
            return {}
        if not all(isinstance(text, str) for text in texts.values()):
            return {}
        return {"rights": rights, **texts}

    def problem(self, request_id: str | None = None) -> dict[str, Any]:
        """Return the problem document, with rights, resource and principal."""
        document = super().problem(request_id)
        if self.rights:
            document["rights"] = list(self.rights)
            document |= {"resource": self.resource, "principal": self.principal}
        return document
