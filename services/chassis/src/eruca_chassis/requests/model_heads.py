"""Heads read as FastAPI reads them: each parameter by its declared type, with pydantic.

:mod:`.heads` reads the heads of the most frequent requests, and leaves texts to their endpoints.
Here the whole declaration counts, and a refusal is the same document that FastAPI's route would
give. It costs a microsecond or two for each parameter that a request has.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, get_origin
from urllib.parse import parse_qsl

from fastapi.dependencies.models import Dependant
from fastapi.params import Param
from pydantic_core import PydanticUndefined

from eruca_chassis.requests.parameters import check_names
from eruca_chassis.requests.validation import error_of_faults

_MISSING: Final = {"type": "missing", "msg": "Field required", "input": None}


class ModelHeads:
    """Reads the parameters of one operation from a request's head.

    Args:
        declared: The operation's signature, as FastAPI understands it.
        refuses_others: Whether a query parameter that it does not declare is refused.
    """

    def __init__(self, declared: Dependant, *, refuses_others: bool = True) -> None:
        self._path = [_Parameter.of(field) for field in declared.path_params]
        self._query = [_Parameter.of(field) for field in declared.query_params]
        self._headers = [
            (parameter.alias.lower().encode(), parameter)
            for parameter in map(_Parameter.of, declared.header_params)
        ]
        self._known = frozenset(parameter.alias for parameter in self._query)
        self._lists = frozenset(parameter.alias for parameter in self._query if parameter.is_list)
        self._refuses_others = refuses_others

    def read(
        self, path: Mapping[str, str], query: bytes, headers: Mapping[bytes, bytes]
    ) -> dict[str, Any]:
        """Return the parameters, by their names in the signature; one that is missing, its default.

        Args:
            path: The path's named segments, decoded.
            query: The query, unchanged, without the question mark.
            headers: Names in lower case.

        Raises:
            ValidationError: One is unknown, given twice, missing or invalid.
        """
        values: dict[str, Any] = {}
        faults: list[Mapping[str, Any]] = []
        pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True) if query else []
        if pairs and self._refuses_others:
            check_names([name for name, _ in pairs], self._known, self._lists)
        for parameter in self._path:
            parameter.read(path[parameter.alias], values, faults)
        given = dict(pairs)
        for parameter in self._query:
            if parameter.is_list and parameter.alias in given:
                several = [value for name, value in pairs if name == parameter.alias]
                parameter.read(several, values, faults)
            else:
                parameter.read(given.get(parameter.alias), values, faults)
        for key, parameter in self._headers:
            text = headers.get(key)
            parameter.read(None if text is None else text.decode("latin-1"), values, faults)
        if faults:
            raise error_of_faults(faults, None)
        return values


class _Parameter(NamedTuple):
    """A declared parameter."""

    name: str  # in the signature
    alias: str  # in requests
    place: str  # path, query or header
    is_list: bool
    is_required: bool
    default: Any
    field: Any  # FastAPI's, which validates

    @classmethod
    def of(cls, field: Any) -> _Parameter:  # noqa: ANN401 - FastAPI's type is private
        declared = field.field_info
        assert isinstance(declared, Param), f"{field.name} is no parameter"
        default = field.default
        assert default is PydanticUndefined or default.__hash__ is not None, "it is shared"
        return cls(
            field.name,
            field.alias,
            declared.in_.value,
            get_origin(declared.annotation) is list,
            declared.is_required(),
            default,
            field,
        )

    def read(
        self, given: str | list[str] | None, values: dict[str, Any], faults: list[Mapping[str, Any]]
    ) -> None:
        """Add the value that is *given* to *values*, or what is wrong with it to *faults*."""
        if given is None:
            if self.is_required:
                faults.append({**_MISSING, "loc": (self.place, self.alias)})
            else:
                values[self.name] = self.default
            return
        value, found = self.field.validate(given, values, loc=(self.place, self.alias))
        if found:
            faults.extend(found)
        else:
            values[self.name] = value
