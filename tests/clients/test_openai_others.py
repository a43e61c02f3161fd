"""openai-python: models, completions, embeddings, speech."""

from __future__ import annotations

from typing import Any

import pytest

from tests.clients.fleet import LONG, Fleet, warm


async def test_models(fleet: Fleet) -> None:
    models = (await fleet.openai.models.list()).data
    assert [model.id for model in models] == [fleet.model]
    assert models[0].model_extra is not None
    assert models[0].model_extra["max_model_len"] > 8_000


async def test_completions(fleet: Fleet) -> None:
    answer = await fleet.openai.completions.create(model=fleet.model, prompt="Once upon a time", max_tokens=7)
    assert answer.choices[0].finish_reason in ("length", "stop")
    assert answer.usage is not None
    assert answer.usage.completion_tokens <= 7


async def test_several_prompts_at_once(fleet: Fleet) -> None:
    answer = await fleet.openai.completions.create(model=fleet.model, prompt=["One", "Two"], max_tokens=3)
    assert [choice.index for choice in answer.choices] == [0, 1]


async def test_a_text_that_goes_on_is_warm(fleet: Fleet) -> None:
    create = fleet.openai.completions.with_raw_response.create
    first = await create(model=fleet.model, prompt=LONG, max_tokens=5)
    second = await create(model=fleet.model, prompt=LONG + "And so it went on.", max_tokens=5)
    warm(second.headers, first.headers)


@pytest.mark.parametrize("encoding", [None, "float", "base64"])
async def test_embeddings(simulated: Fleet, encoding: str | None) -> None:
    """Without a word on it, the library asks for base64 and turns it into numbers."""
    options: Any = {} if encoding is None else {"encoding_format": encoding}
    answer = await simulated.openai.embeddings.create(model="sim-model", input=["one", "two"], **options)
    assert len(answer.data) == 2
    if encoding != "base64":
        assert all(isinstance(value, float) for value in answer.data[0].embedding)


async def test_embeddings_of_token_ids(simulated: Fleet) -> None:
    answer = await simulated.openai.embeddings.create(model="sim-model", input=[[1, 2, 3], [4, 5]], dimensions=8)
    assert [len(row.embedding) for row in answer.data] == [8, 8]
    assert answer.usage.prompt_tokens == 5


async def test_speech(simulated: Fleet) -> None:
    answer = await simulated.openai.audio.transcriptions.create(
        model="sim-model", file=("speech.wav", b"RIFF" + bytes(100_000), "audio/wav")
    )
    assert answer.text
