"""Whether a template goes through the parts of a message's content, or prints it as one text.

The rules are those of vLLM 0.32: loops over `message.content`, under whatever names, tell that it wants parts.
"""

from __future__ import annotations

from collections.abc import Iterator

from jinja2 import nodes

from router.adapters.tokenizer.conversation import ContentFormat


def content_format(template: nodes.Template) -> ContentFormat:
    """Return how a parsed template wants a message's content."""
    try:
        return "openai" if any(_content_loops(template)) else "string"
    except _TooClever:
        return "string"


class _TooClever(Exception):
    """A loop or an assignment with several targets, which vLLM does not follow either."""


def _content_loops(root: nodes.Template) -> Iterator[bool]:
    """Yield for each loop whether it is one over a message's content, in a macro that is given it as well."""
    messages = list(_message_names(root))
    in_macros = {id(loop) for macro in root.find_all(nodes.Macro) for loop in macro.find_all(nodes.For)}
    for loop in root.find_all(nodes.For):
        over_content = any(_reaches(loop.iter, name, "content") for name in messages)
        yield over_content or (_is_variable(loop.iter, "content") and id(loop) not in in_macros)
    for macro in root.find_all(nodes.Macro):
        given = set(_parameters_with_content(root, macro, messages))
        for loop in macro.find_all(nodes.For):
            yield isinstance(loop.iter, nodes.Name) and loop.iter.name in given


def _message_names(root: nodes.Template) -> Iterator[str]:
    """Yield what a single message is called in loops over the messages."""
    lists = list(_names_of(root, "messages"))
    for loop in root.find_all(nodes.For):
        if any(_reaches(loop.iter, name) for name in lists):
            yield _target(loop.target)


def _names_of(root: nodes.Template, name: str) -> Iterator[str]:
    """Yield a variable's name and those of the variables that are assigned it, or slices of it."""
    known, waiting = {name}, [name]
    while waiting:
        name = waiting.pop()
        yield name
        for assigned in root.find_all(nodes.Assign):
            if _reaches(assigned.node, name) and (target := _target(assigned.target)) not in known:
                known.add(target)
                waiting.append(target)


def _target(node: nodes.Node) -> str:
    if not isinstance(node, nodes.Name):
        raise _TooClever
    return node.name


def _parameters_with_content(root: nodes.Template, macro: nodes.Macro, messages: list[str]) -> Iterator[str]:
    names = [argument.name for argument in macro.args]
    for call in root.find_all(nodes.Call):
        if isinstance(call.node, nodes.Name) and call.node.name == macro.name:
            given = [*zip(names, call.args, strict=False), *((word.key, word.value) for word in call.kwargs)]
            for parameter, value in given:
                if parameter in names and any(_reaches(value, name, "content") for name in messages):
                    yield parameter


def _reaches(node: nodes.Node | None, name: str, key: str | None = None) -> bool:
    """Tell whether an expression is a variable, or its attribute `key`: as it is, filtered, tested or sliced."""
    while isinstance(node, nodes.Filter | nodes.Test) or _is_slice(node):
        node = node.node  # type: ignore[union-attr]
    if key is None:
        return _is_variable(node, name)
    if isinstance(node, nodes.Getitem):
        return _is_variable(node.node, name) and isinstance(node.arg, nodes.Const) and node.arg.value == key
    return isinstance(node, nodes.Getattr) and _is_variable(node.node, name) and node.attr == key


def _is_slice(node: nodes.Node | None) -> bool:
    return isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice)


def _is_variable(node: nodes.Node | None, name: str) -> bool:
    return isinstance(node, nodes.Name) and node.ctx == "load" and node.name == name
