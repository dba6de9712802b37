"""The request is wrong: repeating it unchanged is useless (4xx)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

from eruca.contract.errors.base import ErucaError


class RequestError(ErucaError):
    """The request is wrong: repeating it unchanged is useless."""

    code = "bad-request"
    status = 400
    title = "The request is wrong"


class ValidationError(RequestError):
    """A field's value is outside what the contract allows."""

    code = "validation-failed"
    status = 422
    title = "A value is not allowed"

    @classmethod
    def at(cls, pointer: str, detail: str, *, fix: str | None = None) -> Self:
        """Return the error of one value: *pointer* is its place in the request."""
        return cls(f"{pointer}: {detail}", errors=[{"pointer": pointer, "detail": detail}], fix=fix)


class FilterSyntaxError(ValidationError):
    """A filter cannot be understood; ``position`` and ``excerpt`` show where."""

    code = "filter-syntax"
    title = "The filter is not understood"

    def __init__(
        self,
        detail: str,
        *,
        position: int | None = None,
        excerpt: str | None = None,
        fix: str | None = None,
        errors: Sequence[Mapping[str, str]] = (),
        request_id: str | None = None,
        retry_after_seconds: float | None = None,
    ) -> None:
        super().__init__(
            detail,
            fix=fix,
            errors=errors,
            request_id=request_id,
            retry_after_seconds=retry_after_seconds,
        )
        self.position = position  # of the first character that is wrong, from 0
        self.excerpt = excerpt  # what stands there

    @classmethod
    def extension_members(cls, document: Mapping[str, Any]) -> dict[str, Any]:
        """Return where the filter is wrong, as far as the document says it."""
        position, excerpt = document.get("position"), document.get("excerpt")
        return {
            "position": position if isinstance(position, int) else None,
            "excerpt": excerpt if isinstance(excerpt, str) else None,
        }

    def problem(self, request_id: str | None = None) -> dict[str, Any]:
        """Return the problem document, with where the filter is wrong."""
        where = {"position": self.position, "excerpt": self.excerpt}
        return super().problem(request_id) | {k: v for k, v in where.items() if v is not None}


class IdempotencyKeyReusedError(RequestError):
    """Something else was sent under this idempotency key; that stands, and this is not stored."""

    code = "idempotency-key-reused"
    status = 422
    title = "Something else was sent under this idempotency key"
    default_fix = "send it under another Idempotency-Key to store it as well"


class MalformedBodyError(RequestError):
    """The body is not JSON, or not of the shape the operation takes."""

    code = "malformed-body"
    status = 400
    title = "The body could not be read"
    default_fix = "send one JSON value, in UTF-8"


class MalformedBatchError(RequestError):
    """A body of the records media type is not a sound batch; nothing of it was stored."""

    code = "malformed-records"
    status = 400
    title = "The batch of records is not sound"
    default_fix = "lay the records out as the detail says, and send the batch again"


class TooLargeError(RequestError):
    """A body, batch or property exceeds its limit."""

    code = "too-large"
    status = 413
    title = "The message or batch is too large"
    default_fix = "make it smaller, or send less at a time; the detail names the limit"


class UnsupportedMediaTypeError(RequestError):
    """The operation does not take this Content-Type."""

    code = "unsupported-media-type"
    status = 415
    title = "The content type is not supported here"
    default_fix = "set the header Content-Type to what the operation takes; see /docs"


class NotAcceptableError(RequestError):
    """The operation cannot answer in any media type of the Accept header."""

    code = "not-acceptable"
    status = 406
    title = "The requested answer format is not supported here"
    default_fix = "set the header Accept to what the operation answers with; see /docs"


class MethodNotAllowedError(RequestError):
    """The path exists, but not with this method."""

    code = "method-not-allowed"
    status = 405
    title = "The method is not allowed here"
    default_fix = "use a method that the path takes; see /docs"


class UnknownMethodError(RequestError):
    """The request's method is one that no path of any service takes."""

    code = "method-unknown"
    status = 501
    title = "The method is not implemented"
    default_fix = "use a method that OpenAPI names, in capital letters; see /docs"


class ExpectationError(RequestError):
    """The request expects something else of the service than to be told to go on."""

    code = "expectation-failed"
    status = 417
    title = "The expectation cannot be met"
    default_fix = "leave out the header Expect, or send Expect: 100-continue"


class TargetTooLongError(RequestError):
    """The request's path and query are longer than any that means something."""

    code = "target-too-long"
    status = 414
    title = "The request's URL is too long"
    default_fix = "ask for less at a time, or say it in the body where the operation has one"


class HeadTooLargeError(RequestError):
    """The request's headers, its trailers, or what frames its chunks exceed their limit."""

    code = "head-too-large"
    status = 431
    title = "The request's headers are too large"
    default_fix = "send fewer or shorter headers; the detail names the limit"


class TransferCodingError(RequestError):
    """The body comes in a transfer coding that no service undoes."""

    code = "transfer-coding-unsupported"
    status = 501
    title = "The transfer coding is not implemented"
    default_fix = "send the body as it is, with Content-Length or Transfer-Encoding: chunked"


class HttpVersionError(RequestError):
    """The request is of another version of HTTP than 1.1 and 1.0."""

    code = "http-version-unsupported"
    status = 505
    title = "The version of HTTP is not supported"
    default_fix = "speak HTTP/1.1"
