"""The name of the model is found and changed where it stands; every other byte stays as it was."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.proxy.model_field import MAX_TRIED, WINDOW_BYTES, form_model, with_model
from router.proxy.openai import is_batch, read_request


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'{"model":"a"}', b'{"model":"b"}'),
        (b'{ "x" : 1.50,\n\t"model" :  "a" , "y":[ 1,2 ]}\n', b'{ "x" : 1.50,\n\t"model" :  "b" , "y":[ 1,2 ]}\n'),
        (b'{"tool":{"model":"a"},"model":"a"}', b'{"tool":{"model":"a"},"model":"b"}'),
        (b'{"text":"\\"model\\": \\"a\\"","model":"a"}', b'{"text":"\\"model\\": \\"a\\"","model":"b"}'),
        (b'{"model":"first","n":1,"model":"a"}', b'{"model":"first","n":1,"model":"b"}'),
        (b'{"model":"\\u0061","n":1e2}', b'{"model":"b","n":1e2}'),
        (b'{"a":"model","model":"a"}', b'{"a":"model","model":"b"}'),
    ],
    ids=["alone", "spaces", "nested", "quoted", "twice", "escaped", "as a value"],
)
def test_only_the_name_changes(before: bytes, after: bytes) -> None:
    assert with_model(before, "b") == after


def test_a_name_is_written_as_json() -> None:
    assert json.loads(with_model(b'{"model":"a","n":1}', 'Qwen/"3" \u00e9'))["model"] == 'Qwen/"3" \u00e9'


@pytest.mark.parametrize(
    "body",
    [
        b'{"mo\\u0064el": "a", "n": [1,  2]}',
        b'{"x":[' + b'{"model":"a"},' * (MAX_TRIED + 1) + b'0],"model":"a"}',
    ],
    ids=["a key in escapes", "behind many others"],
)
def test_what_is_not_found_is_written_anew(body: bytes) -> None:
    assert json.loads(with_model(body, "b")) == json.loads(body) | {"model": "b"}


def test_what_is_no_object_is_refused() -> None:
    with pytest.raises(msgspec.MsgspecError):
        with_model(b"[1]", "b")


NAMES = st.sampled_from(["model", "messages", "x"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 99) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=9,
)


@given(st.dictionaries(st.sampled_from(["x", "messages", "tools", "stream"]), JSON), st.text(max_size=9), st.booleans())
def test_whatever_else_is_in_it_stays(rest: dict[str, object], name: str, first: bool) -> None:
    fields = {"model": "a"} | rest if first else rest | {"model": "a"}
    assert json.loads(with_model(json.dumps(fields).encode(), name)) == fields | {"model": name}


def form(*parts: tuple[str, bytes], boundary: bytes = b"X7f") -> bytes:
    written = [
        b"--%b\r\nContent-Disposition: form-data; %b\r\n\r\n%b\r\n" % (boundary, head.encode(), value)
        for head, value in parts
    ]
    return b"".join(written) + b"--%b--\r\n" % boundary


FILE = 'name="file"; filename="model"'


@pytest.mark.parametrize("size", [10, 3 * WINDOW_BYTES])
@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("head", ['name="model"', "name=model", 'name="model"; x=1'])
def test_a_forms_model_is_found_before_and_behind_a_file(size: int, last: bool, head: str) -> None:
    parts = [(FILE, b"\0model\r\n" * (size // 8)), (head, b"whisper")]
    body = form(*(parts if last else reversed(parts)))
    assert form_model(body) == "whisper"
    changed = with_model(body, "large")
    assert form_model(changed) == "large"
    assert changed.replace(b"large", b"whisper") == body


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"--",
        b"--\r\n",
        b"--x--",
        b"--x\r\n--x\r\n--x--",
        b"--" + b"x" * 500 + b'\r\nContent-Disposition: form-data; name="model"\r\n\r\nm\r\n--' + b"x" * 500,
        form((FILE, b"audio")),
        form(('name="other_model"', b"m")),
        form(('name="xmodel"', b"m"), ('name="model_name"', b"m")),
        form(("name=file", b'\r\nContent-Disposition: form-data; name="model"\r\n\r\nm\r\n')),
        form(('name="model"', b"m"))[:-12],
    ],
)
def test_a_form_that_names_none_has_none(body: bytes) -> None:
    assert form_model(body) == ""


@given(st.binary(max_size=300), st.binary(max_size=60))
def test_no_bytes_break_it(start: bytes, end: bytes) -> None:
    form_model(b"--" + start + b'\r\nContent-Disposition: form-data; name="model"\r\n\r\n' + end)
    form_model(start)


def test_an_unread_form_is_routed_by_its_model() -> None:
    read = read_request("/v1/audio/transcriptions", form((FILE, b"\0" * 99), ('name="model"', b"whisper")), None)
    assert (read.model, read.shape, read.prompt) == ("whisper", "unknown", None)


@pytest.mark.parametrize(
    ("said", "batch"),
    [("batch", True), (" Batch ", True), ("1", True), ("007", True), ("9" * 6_000, True), ("0", False), ("000", False),
     ("-1", False), ("interactive", False), ("", False), ("1.5", False)],
)  # fmt: skip
def test_how_a_priority_is_read(said: str, batch: bool) -> None:
    assert is_batch(said) is batch
