"""Errors of an invalid request: a retry of it fails as well (4xx, 501, 505)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self, Unpack

from eruca.contract.errors.base import ErucaError, ProblemOptions


class RequestError(ErucaError):
    """The request is invalid; an unchanged retry fails as well."""

    code = "bad-request"
    status = 400
    title = "The request is invalid"


class ValidationError(RequestError):
    """A field's value is outside what the contract allows."""

    code = "validation-failed"
    status = 422
    title = "A value is not allowed"

    @classmethod
    def at(cls, pointer: str, detail: str, *, fix: str | None = None) -> Self:
        """Return the error of one value; *pointer* is its JSON pointer in the request."""
        return cls(f"{pointer}: {detail}", errors=[{"pointer": pointer, "detail": detail}], fix=fix)


class FilterSyntaxError(ValidationError):
    """A filter is not valid; ``position`` and ``excerpt`` show the place."""

    code = "filter-syntax"
    title = "The filter is not valid"

    def __init__(
        self,
        detail: str,
        *,
        position: int | None = None,
        excerpt: str | None = None,
        **options: Unpack[ProblemOptions],
    ) -> None:
        super().__init__(detail, **options)
        self.position = position  # index of the first invalid character, from 0
        self.excerpt = excerpt  # the text at that position

    @classmethod
    def extension_members(cls, document: Mapping[str, Any]) -> dict[str, Any]:
        """Return position and excerpt, if the document contains them."""
        position, excerpt = document.get("position"), document.get("excerpt")
        return {
            "position": position if isinstance(position, int) else None,
            "excerpt": excerpt if isinstance(excerpt, str) else None,
        }

    def problem(self, request_id: str | None = None) -> dict[str, Any]:
        """Return the problem document, with position and excerpt."""
        where = {"position": self.position, "excerpt": self.excerpt}
        return super().problem(request_id) | {k: v for k, v in where.items() if v is not None}


class IdempotencyKeyReusedError(RequestError):
    """Another request already used this idempotency key; this request is not stored."""

    code = "idempotency-key-reused"
    status = 422
    title = "Another request already used this idempotency key"
    default_fix = "use another Idempotency-Key to store this request as well"


class MalformedBodyError(RequestError):
    """The body is not JSON, or not of the shape that the operation expects."""

    code = "malformed-body"
    status = 400
    title = "The body is unreadable"
    default_fix = "send one JSON value, in UTF-8"


class MalformedBatchError(RequestError):
    """A body of the records media type is not a valid batch; none of it was stored."""

    code = "malformed-records"
    status = 400
    title = "The batch of records is not valid"
    default_fix = "correct the record layout that the detail names, then send the batch again"


class TooLargeError(RequestError):
    """A body, batch or property exceeds its limit."""

    code = "too-large"
    status = 413
    title = "The message or batch is too large"
    default_fix = "send a smaller message or batch; the detail names the limit"


class UnsupportedMediaTypeError(RequestError):
    """The operation does not support this Content-Type."""

    code = "unsupported-media-type"
    status = 415
    title = "The content type is not supported here"
    default_fix = "set the header Content-Type to one that the operation supports; see /docs"


class NotAcceptableError(RequestError):
    """The operation cannot answer in any media type of the Accept header."""

    code = "not-acceptable"
    status = 406
    title = "The requested answer format is not supported here"
    default_fix = "set the header Accept to one that the operation supports; see /docs"


class MethodNotAllowedError(RequestError):
    """The path exists, but not with this method."""

    code = "method-not-allowed"
    status = 405
    title = "The method is not allowed here"
    default_fix = "use a method that the path supports; see /docs"


class UnknownMethodError(RequestError):
    """No path of any service supports the request's method."""

    code = "method-unknown"
    status = 501
    title = "The method is not implemented"
    default_fix = "use a method that the OpenAPI document names, in capital letters; see /docs"


class ExpectationError(RequestError):
    """The request's Expect header is not 100-continue."""

    code = "expectation-failed"
    status = 417
    title = "The expectation cannot be met"
    default_fix = "omit the header Expect, or send Expect: 100-continue"


class PreconditionRequiredError(RequestError):
    """The operation changes a resource only under a condition, and the request has none."""

    code = "precondition-required"
    status = 428
    title = "The request has no condition"
    default_fix = "send If-Match with the ETag that you have read, or If-None-Match: * to create it"


class TargetTooLongError(RequestError):
    """The request's path and query exceed their limit."""

    code = "target-too-long"
    status = 414
    title = "The request's URL is too long"
    default_fix = "request less at a time, or use the body if the operation has one"


class HeadTooLargeError(RequestError):
    """The request's headers, its trailers or its chunk framing exceed their limit."""

    code = "head-too-large"
    status = 431
    title = "The request's headers are too large"
    default_fix = "send fewer or shorter headers; the detail names the limit"


class TransferCodingError(RequestError):
    """The body has a transfer coding that no service decodes."""

    code = "transfer-coding-unsupported"
    status = 501
    title = "The transfer coding is not implemented"
    default_fix = "send the body unencoded, with Content-Length or Transfer-Encoding: chunked"


class HttpVersionError(RequestError):
    """The request's HTTP version is neither 1.1 nor 1.0."""

    code = "http-version-unsupported"
    status = 505
    title = "The HTTP version is not supported"
    default_fix = "speak HTTP/1.1"
