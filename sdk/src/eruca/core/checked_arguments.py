"""Check the arguments of public calls: refuse, by name, an argument of an undeclared type.

The decorator :func:`checked_calls` makes each public method of a class compare its arguments with
its annotations. So a program gets the same clear error everywhere, at the call that is wrong. The
calls themselves check limits and meanings.

Methods on the way of every message are left out: they check what they are given themselves.

Every annotation is resolved: one that a program could not be held to would let anything through.
Names that a module imports for type checkers only are named to the decorator with their modules.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import datetime
from importlib import import_module
from inspect import CO_VARARGS
from numbers import Integral, Real
from types import FunctionType, GenericAlias, NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    NamedTuple,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from eruca.contract.errors import ValidationError

C = TypeVar("C", bound=type)

_NAMES: Final[dict[Any, str]] = {
    str: "a text (str)",
    bytes: "bytes",
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    datetime: "a time (datetime)",
    NoneType: "None",
}


class _Parameter(NamedTuple):
    name: str
    kind: Any
    fits: Callable[[Any], bool]


_CLASSES: Final[dict[Any, Any]] = {None: NoneType, float: Real, int: Integral}
"""The classes of values for types that other classes stand for, too."""

# Of each call that checks its arguments, what it checks them by.
_PARAMETERS_OF: Final[dict[Callable[..., Any], Callable[[], tuple[_Parameter, ...]]]] = {}


class _LateNames(dict[str, Any]):
    """Resolve names in annotations; load their modules at the first call that needs them."""

    def __init__(self, homes: Mapping[str, str]) -> None:
        super().__init__()
        self._homes = homes

    def __missing__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(import_module(self._homes[name]), name)


def checked_calls(
    *, but: Collection[str] = (), late: Mapping[str, str] | None = None
) -> Callable[[C], C]:
    """Return a decorator that makes a class check the arguments of its public methods.

    Args:
        but: Methods that check their arguments themselves.
        late: The module of each name that the class's module imports only for type checkers. It is
            loaded at the first call of a method that needs it.
    """
    late_names = _LateNames(late or {})

    def decorate(checked_class: C) -> C:
        for name, member in list(vars(checked_class).items()):
            if inspect.isfunction(member) and not name.startswith("_") and name not in but:
                setattr(checked_class, name, _checked(member, late_names))
        return checked_class

    return decorate


def check_argument(name: str, value: object, kind: object) -> None:
    """Raise ValidationError if *value* is not of the type *kind*; *name* is for the error."""
    if _check_of(kind)(value):
        return
    fix = f"give {name} as {_said(kind)}"
    if isinstance(value, Mapping) and (of_items := _mapping_kind(kind)) is not None:
        fits = _check_of(of_items)
        for item in value.values():
            if not fits(item):
                raise ValidationError(f"{name}: {item!r:.60} is not {_said(of_items)}", fix=fix)
    raise ValidationError(f"{name}: {value!r:.60} is not {_said(kind)}", fix=fix)


def check_fields(options: Any, path: str) -> None:  # noqa: ANN401
    """Raise ValidationError if a field of a dataclass is not of the type it declares.

    *path* is the name of the options in errors: ``limits`` gives ``limits.span_max: …``.
    """
    for name, kind in _field_kinds(options.__class__).items():
        check_argument(f"{path}.{name}", getattr(options, name), kind)


@functools.cache
def _field_kinds(options_class: type[Any]) -> dict[str, Any]:
    return get_type_hints(options_class)


def _mapping_kind(kind: Any) -> Any:  # noqa: ANN401
    """Return the declared type of a mapping's values; None if *kind* allows no mapping."""
    for one in get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,):
        origin = get_origin(one)
        if isinstance(origin, type) and issubclass(origin, Mapping):
            return get_args(one)[1]
    return None


def _checked(function: Callable[..., Any], late_names: _LateNames) -> Callable[..., Any]:
    signature = inspect.signature(function)

    @functools.cache  # at the first call: modules of annotations may load late
    def parameters() -> tuple[_Parameter, ...]:
        return tuple(_parameters(function, signature, late_names))

    @functools.cache
    def by_name() -> dict[str, _Parameter]:
        return {parameter.name: parameter for parameter in parameters()}

    positional = [
        name
        for name, parameter in list(signature.parameters.items())[1:]
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    repeated = next(
        (p.name for p in signature.parameters.values() if p.kind is p.VAR_POSITIONAL), None
    )

    def check(*args: Any, **options: Any) -> None:  # noqa: ANN401
        # Python itself refuses a call that does not fit the signature.
        known = by_name()
        if len(args) > 1:
            for name, value in zip(positional, args[1:], strict=False):
                parameter = known.get(name)
                if parameter is not None and not parameter.fits(value):
                    check_argument(name, value, parameter.kind)
            if repeated is not None and repeated in known:
                check_argument(repeated, args[1 + len(positional) :], known[repeated].kind)
        for name, value in options.items():
            parameter = known.get(name)
            if parameter is not None and not parameter.fits(value):
                check_argument(name, value, parameter.kind)

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def call_async(*args: Any, **options: Any) -> Any:  # noqa: ANN401
            check(*args, **options)
            return await function(*args, **options)

        _PARAMETERS_OF[call_async] = parameters
        return call_async

    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:  # noqa: ANN401
        check(*args, **options)
        return function(*args, **options)

    _PARAMETERS_OF[call] = parameters
    return call


def checked_argument_names(call: Callable[..., Any]) -> list[str] | None:
    """Return the arguments that *call* checks by their annotations; None if it is unchecked.

    Raises:
        NameError: An annotation cannot be resolved.
    """
    parameters = _PARAMETERS_OF.get(call)
    return None if parameters is None else [parameter.name for parameter in parameters()]


def _parameters(
    function: Callable[..., Any], signature: inspect.Signature, late_names: _LateNames
) -> Iterator[_Parameter]:
    for name, parameter in list(signature.parameters.items())[1:]:
        kind = _resolved(function, parameter.annotation, late_names)
        if kind is Any or parameter.kind is parameter.VAR_KEYWORD:
            continue
        if parameter.kind is parameter.VAR_POSITIONAL:
            kind = GenericAlias(tuple, (kind, ...))
        yield _Parameter(name, kind, _check_of(kind))


def _resolved(
    function: Callable[..., Any],
    annotation: object,
    late_names: _LateNames,
) -> Any:  # noqa: ANN401
    """Return the type that an annotation names."""
    if not isinstance(annotation, str):
        return annotation
    return eval(annotation, vars(sys.modules[function.__module__]), late_names)


@functools.cache
def _check_of(kind: Any) -> Callable[[Any], bool]:  # noqa: ANN401
    """Return the function that tells whether a value is of the type *kind*.

    It takes *kind* apart once. Most values are of a class: one call of isinstance.
    """
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _check_of(arguments[0])
    if kind is Any or isinstance(kind, TypeVar):
        return _fits_anything
    if (classes := _classes_of(kind)) is not None:
        return lambda value: isinstance(value, classes)
    if origin in (Union, UnionType):
        checks = [_check_of(one) for one in arguments]
        return lambda value: any(fits(value) for fits in checks)
    if origin is Literal:
        return lambda value: isinstance(value, str | int) and value in arguments
    if origin is Callable:
        return lambda value: callable(value) and _takes(value, arguments)
    if isinstance(origin, type):
        return _check_of_generic(origin, arguments)
    return _fits_anything  # a protocol that isinstance does not support


def _fits_anything(_value: object) -> bool:
    return True


def _classes_of(kind: Any) -> tuple[type, ...] | None:  # noqa: ANN401
    """Return the classes that *kind* names, if isinstance supports them all; else None."""
    kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    classes = tuple(_CLASSES.get(one, one) for one in kinds)
    return classes if all(map(_is_plain, classes)) else None


def _is_plain(kind: Any) -> bool:  # noqa: ANN401
    """Tell whether *kind* is a class that isinstance supports."""
    if not isinstance(kind, type) or get_origin(kind) is not None:
        return False
    try:
        isinstance(None, kind)
    except TypeError:
        return False
    return True


def _check_of_generic(
    origin: Any,  # noqa: ANN401
    arguments: tuple[Any, ...],
) -> Callable[[Any], bool]:
    """Return the check of a class with arguments: of a container, of its items, too."""
    if issubclass(origin, Mapping):
        keys_fit, items_fit = map(_check_of_each, arguments)
        return lambda value: (
            isinstance(value, Mapping) and keys_fit(value) and items_fit(value.values())
        )
    is_of_origin = _check_of(origin)
    if not issubclass(origin, Iterable) or not arguments:
        return is_of_origin
    each_fits = _check_of_each(arguments[0])

    def check(value: object) -> bool:
        if not is_of_origin(value) or isinstance(value, str | bytes):
            return False  # the characters of a text are not items
        # Others are read only once.
        return not isinstance(value, list | tuple | set | frozenset | dict) or each_fits(value)

    return check


def _check_of_each(kind: Any) -> Callable[[Iterable[Any]], bool]:  # noqa: ANN401
    """Return the function that tells whether all items are of the type *kind*.

    A thousand messages are of one class: one check for all of them.
    """
    fits, classes = _check_of(kind), _classes_of(kind)

    def check(items: Iterable[Any]) -> bool:
        if classes is not None and all(issubclass(one, classes) for one in {*map(type, items)}):
            return True
        return all(map(fits, items))

    return check


def _takes(function: Callable[..., Any], arguments: tuple[Any, ...]) -> bool:
    """Return whether *function* accepts the declared number of arguments."""
    if not arguments or arguments[0] is Ellipsis:
        return True
    count = len(arguments[0])
    if isinstance(function, FunctionType) and not hasattr(function, "__wrapped__"):
        code, optional_count = function.__code__, len(function.__defaults__ or ())
        if not code.co_kwonlyargcount:  # else some may be required
            is_enough = code.co_argcount - optional_count <= count
            return is_enough and (count <= code.co_argcount or bool(code.co_flags & CO_VARARGS))
    try:
        inspect.signature(function).bind(*arguments[0])
    except TypeError:
        return False
    except ValueError:
        return True  # a function in C without a signature
    return True


def _said(kind: Any) -> str:  # noqa: ANN401
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(map(_said, arguments)))
    if origin is Literal:
        return f"one of {', '.join(map(repr, arguments))}"
    if kind is None:
        return "None"
    if (name := _NAMES.get(kind)) is not None:
        return name
    if origin is Callable:
        return _said_of_function(arguments)
    if origin is not None and isinstance(origin, type):
        if issubclass(origin, Mapping):
            return f"a mapping from {_said(arguments[0])} to {_said(arguments[1])}"
        if issubclass(origin, Iterable):
            return f"a list of {_plural(arguments[0])}" if arguments else "a list"
        return str(kind)
    if not isinstance(kind, type):
        return str(kind)
    of_ours = "eruca." if kind.__module__.startswith("eruca.") else ""
    return f"an object of {of_ours}{kind.__name__}"


def _said_of_function(arguments: tuple[Any, ...]) -> str:
    if not arguments or arguments[0] is Ellipsis:
        return "a function"
    count = len(arguments[0])
    return f"a function that takes {count} argument{'' if count == 1 else 's'}"


def _plural(kind: Any) -> str:  # noqa: ANN401
    if kind is str:
        return "texts"
    if kind is int:
        return "whole numbers"
    return f"{kind.__name__} objects" if isinstance(kind, type) else str(kind)
