"""An OpenAPI document's examples, as requests to send and answers to expect.

An example is of a moment: the transaction of this id, the delivery of that handle. A test that runs
one brings the service to such a moment, and names the values that are others there (``changes``).
The answer is then held against what the document says of it: its status, its schema, and its
*shape*, which is every member of every object of the example, in the type it has there. A header
that the document gives with examples has the one that is called as the request's, or is not there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeAlias, TypeVar
from urllib.parse import quote

import httpx
import jsonschema_rs

JSON: Final = "application/json"
METHODS: Final = ("get", "put", "post", "delete", "patch")
_NUMBERS: Final = (int, float)


@dataclass(frozen=True, slots=True)
class Example:
    """One example of one operation."""

    operation: str
    name: str  # of the example, where there are several; else empty
    method: str
    path: str  # the template
    path_values: Mapping[str, Any]
    query: Mapping[str, Any]
    headers: Mapping[str, Any]
    body: Any  # of a JSON body, else None
    body_type: str | None
    answers: Mapping[str, Any]  # the document's response objects by status

    @property
    def label(self) -> str:
        """Its name in a test's id."""
        return f"{self.operation} {self.name}".rstrip()

    async def send(
        self,
        client: httpx.AsyncClient,
        changes: Mapping[str, Any],
        content: bytes | None = None,
    ) -> httpx.Response:
        """Send it with *changes*: values by the name of the parameter or member that has them.

        Args:
            client: Of the service; its base URL has no path.
            changes: None takes a query parameter, header or member away.
            content: A body that is not JSON.
        """
        path = self.path
        for name, value in self.path_values.items():
            path = path.replace(f"{{{name}}}", quote(str(changes.get(name, value)), safe=""))
        query = {name: changes.get(name, value) for name, value in self.query.items()}
        is_json = content is None and self.body is not None
        headers = {name: changes.get(name, value) for name, value in self.headers.items()}
        if content is not None:
            headers["content-type"] = self.body_type
        return await client.request(
            self.method,
            path,
            params={name: value for name, value in query.items() if value is not None},
            headers={name: str(value) for name, value in headers.items() if value is not None},
            content=content,
            json=changed(self.body, changes) if is_json else None,
        )


def examples_of(document: dict[str, Any]) -> Iterator[Example]:
    """Return every example of every operation."""
    for path, item in document["paths"].items():
        for method, operation in item.items():
            if method not in METHODS:
                continue
            values: dict[str, dict[str, Any]] = {"path": {}, "query": {}, "header": {}}
            for parameter in operation.get("parameters", ()):
                examples = [parameter.get("example"), *parameter["schema"].get("examples", ())]
                chosen = next((e for e in examples if e is not None), None)
                if chosen is not None and parameter["in"] in values:
                    values[parameter["in"]][parameter["name"]] = chosen
            content = operation.get("requestBody", {}).get("content", {})
            body_type = next(iter(content), None)
            media = content.get(body_type, {})
            bodies = [(name, of["value"]) for name, of in media.get("examples", {}).items()]
            for name, body in bodies or [("", media.get("example"))]:
                yield Example(
                    operation=operation["operationId"],
                    name=name,
                    method=method.upper(),
                    path=path,
                    path_values=values["path"],
                    query=values["query"],
                    headers=values["header"],
                    body=body,
                    body_type=body_type,
                    answers=operation["responses"],
                )


Changes: TypeAlias = dict[str, Any]
Stage = TypeVar("Stage")


class Scenes(Generic[Stage]):
    """For each example of a document, and each way it ends well, how to get there.

    A scene is a coroutine function of a stage, the service under test; it returns what is other
    there than in the example, or None.
    """

    def __init__(self, document: dict[str, Any]) -> None:
        self.examples = {example.label: example for example in examples_of(document)}
        self.plays: dict[tuple[str, int], Callable[[Stage], Awaitable[Changes | None]]] = {}

    def add(self, label: str, status: int) -> Callable[[_Scene[Stage]], _Scene[Stage]]:
        """Return a decorator: the scene leads to the example called *label*, and to *status*."""

        def kept(scene: _Scene[Stage]) -> _Scene[Stage]:
            self.plays[label, status] = scene
            return scene

        return kept

    def check_that_none_is_missing(self) -> None:
        """Fail unless every example has a scene, and every success of its operation."""
        wanted = {
            (example.operation, int(status))
            for example in self.examples.values()
            for status in example.answers
            if status < "300"
        }
        assert {label for label, _ in self.plays} == self.examples.keys()
        assert {(self.examples[label].operation, status) for label, status in self.plays} == wanted


_Scene: TypeAlias = Callable[[Stage], Awaitable[Changes | None]]


def changed(value: Any, changes: Mapping[str, Any]) -> Any:  # noqa: ANN401  (any JSON value)
    """Return a JSON value with *changes* in place of the members that have their names."""
    if isinstance(value, list):
        return [changed(item, changes) for item in value]
    if isinstance(value, dict):
        return {
            name: changes[name] if name in changes else changed(member, changes)
            for name, member in value.items()
            if name not in changes or changes[name] is not None
        }
    return value


def check_answer(
    document: dict[str, Any], example: Example, answer: httpx.Response, status: int
) -> None:
    """Fail unless *answer* has the status, and is what the document says of it."""
    assert answer.status_code == status, answer.text
    assert str(status) in example.answers, f"{example.operation} does not document {status}"
    check_headers(example, answer)
    contents = example.answers[str(status)].get("content", {})
    if not contents:
        assert not answer.content, answer.text
        return
    media_type = answer.headers["content-type"].partition(";")[0]
    media = contents[media_type]
    if media_type != JSON:
        return
    check_schema(document, media["schema"], answer.json())
    if not example.name or example.name == next(iter(example_names(example, document))):
        differences = list(shape_differences(media["example"], answer.json()))
        assert not differences, differences


def check_headers(example: Example, answer: httpx.Response) -> None:
    """Fail unless *answer* has of the headers with examples those that it is an example of."""
    headers = example.answers[str(answer.status_code)].get("headers", {})
    for name, header in headers.items():
        if "examples" in header:
            expected = header["examples"].get(example.name, {}).get("value")
            assert answer.headers.get(name) == expected, name


def example_names(example: Example, document: dict[str, Any]) -> list[str]:
    """Return the names of the operation's examples; the documented answer is the first one's."""
    media = document["paths"][example.path][example.method.lower()]["requestBody"]["content"]
    return list(media[example.body_type].get("examples", {}))


def check_schema(document: dict[str, Any], schema: dict[str, Any], value: object) -> None:
    """Fail unless *value* is as *schema*, which is one of the document's, wants it."""
    whole = {**schema, "components": document.get("components", {})}
    validator = jsonschema_rs.Draft202012Validator(whole, validate_formats=True)
    faults = [f"{fault.instance_path}: {fault.message}" for fault in validator.iter_errors(value)]
    assert not faults, faults


def shape_differences(expected: Any, found: Any, at: str = "") -> Iterator[str]:  # noqa: ANN401
    """Return where *found* is of another shape than *expected*.

    Null stands for any type here: what may be null, the schema says. Of lists the first items are
    compared, and neither is empty unless both are. An object without members is a map that happens
    to be empty.
    """
    if expected is None or found is None:
        return
    if isinstance(expected, _NUMBERS) and isinstance(found, _NUMBERS):
        if isinstance(expected, bool) is not isinstance(found, bool):
            yield f"{at}: {expected!r} is documented, {found!r} was answered"
    elif type(expected) is not type(found):
        yield f"{at}: {expected!r} is documented, {found!r} was answered"
    elif isinstance(expected, dict) and expected:
        for name in expected.keys() ^ found.keys():
            where = "documented only" if name in expected else "answered only"
            yield f"{at}/{name}: {where}"
        for name in expected.keys() & found.keys():
            yield from shape_differences(expected[name], found[name], f"{at}/{name}")
    elif isinstance(expected, list):
        if bool(expected) is not bool(found):
            yield f"{at}: {expected!r} is documented, {found!r} was answered"
        for one, other in zip(expected[:1], found[:1], strict=False):
            yield from shape_differences(one, other, f"{at}/0")
