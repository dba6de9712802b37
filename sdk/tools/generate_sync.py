"""Generate ``eruca/sync`` from ``eruca/aio``: the same classes and methods, without ``await``.

Each public method of an async class becomes one with the same name, signature and docstring. It
runs the async method through :class:`eruca.sync.portal.Portal`, whose module explains why. The
output is checked in, and a house test compares it with the output of this script.

The inbox works in a transaction of the calling thread, so no event loop runs it. Its sync half is
its async half without the keywords of ``async``.

    python sdk/tools/generate_sync.py           write
    python sdk/tools/generate_sync.py --check   only compare; exit code 1 if something differs
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).parents[1] / "src" / "eruca"
MODULES: Final = (
    "admin",
    "client",
    "group_admin",
    "handling",
    "log_follower",
    "producer",
    "pull_consumer",
    "push_consumer",
    "query",
    "simple_consumer",
    "transaction_admin",
    "transaction_producer",
)
CLASSES: Final = {
    "AsyncAdmin": "admin",
    "AsyncClient": "client",
    "AsyncGroupAdmin": "group_admin",
    "AsyncHandling": "handling",
    "AsyncLogFollower": "log_follower",
    "AsyncProducer": "producer",
    "AsyncPullConsumer": "pull_consumer",
    "AsyncPushConsumer": "push_consumer",
    "AsyncQuery": "query",
    "AsyncSimpleConsumer": "simple_consumer",
    "AsyncTransaction": "transaction_producer",
    "AsyncTransactionAdmin": "transaction_admin",
    "AsyncTransactionProducer": "transaction_producer",
}
# Entering these has an effect; entering the others only names them.
STARTED: Final = frozenset(
    {"AsyncHandling", "AsyncPushConsumer", "AsyncTransaction", "AsyncTransactionProducer"}
)
# Leaving these sends something, so it must not be skipped if the client is closed.
TOLD: Final = frozenset({"AsyncTransaction"})
# These call the program's own code, which must run in the calling thread. So their bodies are
# copied without async, and use the sync twins. The calling thread handles signals, too.
TAKEN_OVER: Final = frozenset({"run", "send_in_transaction"})
# These need no event loop; a signal handler may call the first while its thread waits for the loop.
DIRECT: Final = frozenset({"stop_soon", "add_interceptor"})
# The block of these is the program's own code, in the calling thread: so is what surrounds it.
SURROUNDED: Final = frozenset({"AsyncHandling"})
CALL: Final = "self._calls.call"  # the call of that code
READ: Final = "read_here"  # reads lazy arguments, also in the calling thread
# Used between parts of the SDK; its users do not need them.
INTERNAL: Final = frozenset(
    {
        "conclude_block",
        "context",
        "enter_block",
        "is_acknowledged",
        "is_rejected",
        "leave",
        "leave_block",
        "open_block",
    }
)
WORDS: Final = {
    "Any number of tasks": "Any number of threads",
    "Tasks that send": "Threads that send",
    "A plain function runs in a thread.": "It runs in the thread that calls this.",
}
# The sync half of the inbox: the replacement of each piece of async text, in this order.
INBOX: Final = (
    (r"programs with async\.", "programs without async."),
    (r"number of tasks", "number of threads"),
    (r"eruca\.inbox\.async_connections import block_of, ", "eruca.inbox.connections import "),
    (r"\bcarry_out_async\b", "carry_out"),
    (r"await block_of\(connect\)", "connect()"),
    (r" \| Awaitable\[AbstractAsyncContextManager\[C\]\]", ""),
    (r"\bAwaitable\[(\w+)\]", r"\1"),
    (r"\bAbstractAsync(?=ContextManager\b)", "Abstract"),
    (r"\bAsync(?=Inbox\b)", ""),
    (r"\basync_(?=sessionmaker\b)", ""),
    (r"\bpsycopg\.AsyncConnection\.connect\b", "psycopg.connect"),
    (r"\basync (?=def\b|with\b)", ""),
    (r"\bawait ", ""),
)
INBOX_HEADER: Final = '''
Generated from ``eruca.inbox.asynchronous`` by ``sdk/tools/generate_sync.py``; change that one.
"""
'''
HEADER: Final = '''"""{summary}

Generated from ``eruca.aio.{module}`` by ``sdk/tools/generate_sync.py``; change that one.
See :mod:`eruca.sync.portal` for its design and its rules for threads.
"""
'''


def generate(module: str) -> str:
    """Return the source of one sync module."""
    tree = ast.parse((SOURCE / "aio" / f"{module}.py").read_text())
    summary = (ast.get_docstring(tree) or "").splitlines()[0]
    classes = [
        _class(node)
        for node in tree.body
        if isinstance(node, ast.ClassDef) and node.name in CLASSES
    ]
    body = "\n\n\n".join(classes)
    imports = _imports(module, tree, body)
    text = "\n".join((HEADER.format(summary=_sync_text(summary), module=module), imports, "", body))
    return _formatted(text + "\n")


def generate_inbox() -> str:
    """Return the source of the inbox's sync half."""
    text = (SOURCE / "inbox" / "asynchronous.py").read_text()
    for pattern, replacement in INBOX:
        text, count = re.subn(pattern, replacement, text)
        if count == 0:
            raise SystemExit(f"eruca.inbox.asynchronous: {pattern!r} matches nothing; remove it")
    summary, _, code = text.partition('"""\n')
    return _formatted(f"{summary}\n{INBOX_HEADER}{code}")


def _class(node: ast.ClassDef) -> str:
    name = _sync_name(node.name)
    lines = [f"class {name}:", *_docstring(node, 1)]
    is_client = node.name == "AsyncClient"
    init = next(n for n in node.body if isinstance(n, ast.FunctionDef) and n.name == "__init__")
    if is_client:
        lines += _client_init(init)
    else:
        lines += [
            f"    def __init__(self, portal: Portal, twin: {node.name}) -> None:",
            "        self._portal = portal",
            "        self._twin = twin",
            "",
        ]
    for member in node.body:
        if isinstance(member, (ast.FunctionDef, ast.AsyncFunctionDef)):
            lines += _method(member, of=node.name)
    return "\n".join(lines)


def _client_init(init: ast.FunctionDef) -> list[str]:
    return [
        f"    def __init__({_parameters(init)}) -> None:",
        f"        self._twin = AsyncClient({_arguments(init, read='')})",
        "        self._portal = Portal()",
        "",
    ]


def _method(node: ast.FunctionDef | ast.AsyncFunctionDef, *, of: str) -> list[str]:
    is_client = of == "AsyncClient"
    if node.name in ("__aenter__", "__aexit__", "__aiter__", "__anext__"):
        return _special(node, of=of)
    if node.name.startswith("_") or node.name in INTERNAL:
        return []
    returns = ast.unparse(node.returns) if node.returns is not None else "None"
    head = [
        f"    def {node.name}({_parameters(node)}) -> {_sync_type(returns)}:",
        *_docstring(node, 2),
    ]
    if any(isinstance(d, ast.Name) and d.id == "property" for d in node.decorator_list):
        twin = f"self._twin.{node.name}"
        body = [f"        return {twin}"]
        if returns in CLASSES:
            body = _wrapped(returns, f"self._portal.run(lambda: {twin})", of=of)
        return ["    @property", *head, *body, ""]
    if node.name in TAKEN_OVER:
        return [*head, *_taken_over(node), ""]
    call = f"self._twin.{node.name}"
    arguments = _arguments(node, read=READ)
    if node.name in DIRECT:
        return [*head, f"        {call}({arguments})", ""]
    passed = ", ".join(filter(None, (call, arguments)))
    if returns in CLASSES:
        body = _wrapped(returns, f"self._portal.run({passed})", of=of)
    elif returns.startswith("AsyncIterator["):
        body = [f"        return self._portal.iterate({call}({arguments}))"]
    elif returns.startswith("asyncio.Future["):
        body = [f"        return self._portal.start({passed})"]
    elif isinstance(node, ast.AsyncFunctionDef):
        body = [f"        {'' if returns == 'None' else 'return '}self._portal.call({passed})"]
        if node.name == "close":
            end = "finish" if is_client else "leave"
            body = [f"        self._portal.{end}({passed})"]
    else:
        body = [f"        return self._portal.run({passed})"]
    return [*head, *body, ""]


def _special(node: ast.FunctionDef | ast.AsyncFunctionDef, *, of: str) -> list[str]:
    is_client = of == "AsyncClient"
    if node.name == "__aenter__":
        enter = ["        self._twin.context.check_open()"] if is_client else []
        if of in STARTED:
            enter = ["        self._portal.call(self._twin.__aenter__)"]
        if of in SURROUNDED:
            enter = [
                "        self._portal.call(self._twin.open_block)",
                "        self._twin.enter_block()",
            ]
        return ["    def __enter__(self) -> Self:", *enter, "        return self", ""]
    if node.name == "__aiter__":
        return ["    def __iter__(self) -> Self:", "        return self", ""]
    returns = ast.unparse(node.returns) if node.returns is not None else "None"
    if node.name == "__anext__":
        # Usually the next item is ready, and taking it needs no call on the loop.
        return [
            f"    def __next__(self) -> {returns}:",
            *_docstring(node, 2),
            "        while (item := self._twin._hand_out()) is None:",
            "            if not self._portal.call(self._twin._fill):",
            "                raise StopIteration",
            "        return item",
            "",
        ]
    if of in SURROUNDED:
        return [
            f"    def __exit__({_parameters(node)}) -> None:",
            "        self._twin.leave_block(error)",
            "        self._portal.leave(self._twin.conclude_block, error)",
            "",
        ]
    end = "finish" if is_client else "call" if of in TOLD else "leave"
    return [
        f"    def __exit__({_parameters(node)}) -> None:",
        f"        self._portal.{end}(self._twin.__aexit__, kind, error, traceback)",
        "",
    ]


class _WithoutAsync(ast.NodeTransformer):
    """Turns a coroutine's statements into a plain function's."""

    def visit_AsyncWith(self, node: ast.AsyncWith) -> ast.With:
        self.generic_visit(node)
        return ast.With(items=node.items, body=node.body, lineno=node.lineno)

    def visit_Await(self, node: ast.Await) -> ast.expr:
        self.generic_visit(node)
        called = node.value
        if isinstance(called, ast.Call) and ast.unparse(called.func) == CALL:
            return ast.Call(func=called.args[0], args=called.args[1:], keywords=[])
        return called


def _taken_over(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    """Return the lines of a method's own statements, without async."""
    statements = node.body[1:]  # after the docstring
    text = "\n".join(ast.unparse(_WithoutAsync().visit(statement)) for statement in statements)
    return [f"        {line}" for line in text.splitlines()]


def _wrapped(returns: str, call: str, *, of: str) -> list[str]:
    """Return the lines that wrap an async object; its module is loaded at its first use."""
    name = _sync_name(returns)
    if CLASSES[returns] == CLASSES[of]:
        return [f"        return {name}(self._portal, {call})"]
    return [
        f"        from eruca.sync.{CLASSES[returns]} import {name}  # as the async one, late",
        "",
        f"        return {name}(self._portal, {call})",
    ]


def _parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    return ast.unparse(node.args)


def _arguments(node: ast.FunctionDef | ast.AsyncFunctionDef, *, read: str) -> str:
    """Return the arguments that pass on a method's parameters; *read* reads lazy ones."""

    def passed(argument: ast.arg) -> str:
        annotation = ast.unparse(argument.annotation) if argument.annotation is not None else ""
        return f"{read}({argument.arg})" if read and "Iterable[" in annotation else argument.arg

    parts = [passed(argument) for argument in node.args.args[1:]]
    parts += [f"*{node.args.vararg.arg}"] if node.args.vararg else []
    parts += [f"{argument.arg}={passed(argument)}" for argument in node.args.kwonlyargs]
    return ", ".join(parts)


def _docstring(
    node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef, depth: int
) -> list[str]:
    text = ast.get_docstring(node)
    if text is None:
        return []
    indent = "    " * depth
    after = [""] if isinstance(node, ast.ClassDef) else []
    lines = _sync_text(text).splitlines()
    if len(lines) == 1:
        return [f'{indent}"""{lines[0]}"""', *after]
    body = [f"{indent}{line}".rstrip() for line in lines[1:]]
    return [f'{indent}"""{lines[0]}', *body, f'{indent}"""', *after]


def _imports(module: str, tree: ast.Module, body: str) -> str:
    """Return the imports of the generated classes, as in the async module."""
    used = set(re.findall(r"[A-Za-z_]\w*", _without_docstrings(body)))
    runtime = _runtime_names(body)
    lines: list[str] = []
    for_types: list[str] = []
    for node, is_for_types in _import_nodes(tree):
        for alias in node.names:
            name = alias.asname or alias.name
            if name not in used or name == "annotations":
                continue
            origin = f"from {node.module} import" if isinstance(node, ast.ImportFrom) else "import"
            if name in CLASSES or (isinstance(node, ast.ImportFrom) and node.module == "typing"):
                (lines if name not in CLASSES else for_types).append(f"{origin} {alias.name}")
                continue
            target = for_types if is_for_types or name not in runtime else lines
            target.append(f"{origin} {alias.name}")
    for name in _module_names(tree) & used:
        lines.append(f"from eruca.aio.{module} import {name}")
    lines.append("from eruca.sync.portal import Portal")
    if f"{READ}(" in body:
        lines.append(f"from eruca.sync.portal import {READ}")
    if "Future[" in body:
        for_types.append("from concurrent.futures import Future")
    if re.search(r"-> Iterator\[", body):
        for_types.append("from collections.abc import Iterator")
    for name, home in CLASSES.items():
        if re.search(rf"\b{_sync_name(name)}\b", body) and home != module:
            for_types.append(f"from eruca.sync.{home} import {_sync_name(name)}")
    lines = sorted({*lines})
    for_types = sorted({*for_types} - {*lines})
    lines.append("from typing import TYPE_CHECKING")
    guarded = ["if TYPE_CHECKING:", *(f"    {line}" for line in for_types)] if for_types else []
    return "\n".join(("from __future__ import annotations", *lines, *guarded))


def _import_nodes(tree: ast.Module) -> list[tuple[ast.Import | ast.ImportFrom, bool]]:
    nodes: list[tuple[ast.Import | ast.ImportFrom, bool]] = []
    for node in tree.body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            nodes.append((node, False))
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            nodes += [(n, True) for n in node.body if isinstance(n, (ast.Import, ast.ImportFrom))]
    return nodes


def _module_names(tree: ast.Module) -> set[str]:
    """Return the names that the async module defines and a signature may contain."""
    names = {
        node.target.id
        for node in tree.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    names |= {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    return names | {n.name for n in tree.body if isinstance(n, ast.ClassDef)}


def _runtime_names(body: str) -> set[str]:
    """Return the names that are needed at run time, and not only in annotations."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(body)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            node.returns = None
            for argument in (*node.args.args, *node.args.kwonlyargs, node.args.vararg):
                if argument is not None:
                    argument.annotation = None
    tree = ast.parse(body)
    for function in (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)):
        for part in (
            *function.body,
            *function.args.defaults,
            *filter(None, function.args.kw_defaults),
        ):
            names |= {n.id for n in ast.walk(part) if isinstance(n, ast.Name)}
    return names


def _without_docstrings(body: str) -> str:
    return re.sub(r'"""(.|\n)*?"""', "", body)


def _sync_name(name: str) -> str:
    return name.removeprefix("Async")


def _sync_type(text: str) -> str:
    text = text.replace("asyncio.Future[", "Future[").replace("AsyncIterator[", "Iterator[")
    for name in CLASSES:
        text = re.sub(rf"\b{name}\b", _sync_name(name), text)
    return text


def _sync_text(text: str) -> str:
    for name in CLASSES:
        text = re.sub(rf"\b{name}\b", _sync_name(name), text)
    for word, sync_word in WORDS.items():
        text = text.replace(word, sync_word)
    return text


def _formatted(text: str) -> str:
    ruff = [sys.executable, "-m", "ruff"]
    for step in (["check", "--select", "I,F401", "--fix", "--quiet"], ["format", "--quiet"]):
        done = subprocess.run(
            [*ruff, *step, "--stdin-filename", str(SOURCE / "generated.py"), "-"],
            input=text,
            capture_output=True,
            text=True,
            check=False,
        )
        if not done.stdout:
            raise SystemExit(f"ruff could not parse the generated code:\n{done.stderr}\n{text}")
        text = done.stdout
    return text


def main() -> int:
    """Write the modules, or compare them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="only compare with the existing files")
    only_check = parser.parse_args().check
    stale = []
    texts = {f"sync/{module}.py": generate(module) for module in MODULES}
    texts["inbox/synchronous.py"] = generate_inbox()
    for name, text in texts.items():
        path = SOURCE / name
        if not path.exists() or path.read_text() != text:
            stale.append(name)
            if not only_check:
                path.write_text(text)
    if stale:
        what = "differs from the async half" if only_check else "written from the async half"
        sys.stdout.write(f"{what}: {', '.join(stale)}\n")
    return 1 if stale and only_check else 0


if __name__ == "__main__":
    sys.exit(main())
