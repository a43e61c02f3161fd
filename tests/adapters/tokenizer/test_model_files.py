"""A model's directory: which template counts, what stands around texts, and what is wrong in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from router.adapters.tokenizer.model_files import Model, load_model
from router.adapters.tokenizer.models import Models, tokenised
from router.adapters.tokenizer.trouble import TokenizerFileError, Unrendered
from router.core.token_ids import token_scope
from tests.adapters.tokenizer.tiny import tiny_tokenizer, write_model

TOKENIZER = tiny_tokenizer()


def ids(model: Model, **body: object) -> list[int]:
    shape = "completions" if "prompt" in body else "chat"
    return list(tokenised(model, None, shape, json.dumps(body).encode()).ids)


def text(model: Model, **body: object) -> str:
    decoded: str = TOKENIZER.decode(ids(model, messages=[{"role": "user", "content": "a"}], **body), False)
    return decoded


def test_a_directory_and_the_file_in_it_are_the_same(tmp_path: Path) -> None:
    folder = write_model(tmp_path, TOKENIZER)
    chatml = "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n"
    assert text(load_model(folder)) == text(load_model(folder / "tokenizer.json")) == chatml


def test_which_template_counts(tmp_path: Path) -> None:
    folder = write_model(tmp_path, TOKENIZER, "config")
    assert text(load_model(folder)) == "config"
    (folder / "chat_template.jinja").write_text("file")
    assert text(load_model(folder)) == "file"
    given = tmp_path / "given.jinja"
    given.write_text("given {{ eos_token }}")
    assert text(load_model(folder, given)) == "given <|im_end|>"


def test_a_template_for_tools_is_taken_where_there_are_tools(tmp_path: Path) -> None:
    named = [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "tools"}]
    model = load_model(write_model(tmp_path, TOKENIZER, None, chat_template=named))
    assert text(model) == "plain"
    assert text(model, tools=[{"type": "function", "function": {"name": "f"}}]) == "tools"


def test_without_a_template_chats_are_not_tokenised_and_texts_are(tmp_path: Path) -> None:
    model = load_model(write_model(tmp_path, TOKENIZER, None))
    with pytest.raises(Unrendered):
        text(model)
    assert ids(model, prompt="the rain") == TOKENIZER.encode("the rain").ids


def test_a_model_whose_chats_vllm_renders_itself_has_no_template(tmp_path: Path) -> None:
    folder = write_model(tmp_path, TOKENIZER)
    (folder / "config.json").write_text('{"model_type": "gpt_oss"}')
    assert load_model(folder).template is None


def test_marks_around_texts_are_those_of_the_configuration(tmp_path: Path) -> None:
    bos = TOKENIZER.token_to_id("<|endoftext|>")
    folder = write_model(tmp_path, TOKENIZER, bos_token={"content": "<|endoftext|>"}, add_bos_token=True)
    assert ids(load_model(folder), prompt="a") == [bos, *TOKENIZER.encode("a").ids]
    assert ids(load_model(folder), prompt="a", add_special_tokens=False) == TOKENIZER.encode("a").ids


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("tokenizer.json", None, "there is no"),
        ("tokenizer.json", "{}", "can't be used"),
        ("tokenizer_config.json", "{", "can't be read"),
        ("chat_template.jinja", "{% if %}", "chat template: line 1"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(tmp_path: Path, name: str, content: str | None, told: str) -> None:
    folder = write_model(tmp_path, TOKENIZER)
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_text(content)
    with pytest.raises(TokenizerFileError, match=told) as raised:
        load_model(folder)
    assert "\n" not in str(raised.value)


def test_a_model_is_found_by_its_name_its_base_s_or_as_the_one_for_all(tmp_path: Path) -> None:
    one, other = (load_model(write_model(tmp_path / name, TOKENIZER)) for name in ("one", "other"))
    parents = {"adapter": "a", "lost": "nobody"}
    models = Models({"a": one, "": other}, parents.get)
    assert models.find("a") == (one, None)
    assert models.find("adapter") == (one, "adapter")
    assert models.find("b") == (other, None)
    assert models.find("lost") == (other, "lost")
    assert Models({"a": one}, parents.get).find("b") == (None, None)


def test_adapter_and_salt_are_the_scope(tmp_path: Path) -> None:
    model = load_model(write_model(tmp_path, TOKENIZER))
    body = json.dumps({"prompt": [1, 2], "cache_salt": "salt"}).encode()
    assert tokenised(model, "adapter", "completions", body).scope == token_scope("adapter", "salt")
    assert tokenised(model, None, "completions", b'{"prompt": [1]}').scope == token_scope(None, None)
    scopes = {token_scope(*pair) for pair in ((None, None), ("a", None), (None, "a"), ("a", "a"))}
    assert len(scopes) == 4
