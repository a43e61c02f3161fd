"""The settings of what is known exactly instead of estimated: prompts as the engines' own tokens."""

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_settings import NoDecode

from router.app.settings.about import About
from router.app.settings.door import DoorSettings
from router.app.settings.values import split_list, tokenizers


class ExactSettings(DoorSettings):
    """Fields only; `router.app.settings.model.Settings` adds the rest."""

    tokenizer: Annotated[
        tuple[str, ...],
        NoDecode,
        BeforeValidator(split_list),
        AfterValidator(tokenizers),
        Field(
            description="Directory of a model's tokenizer and chat template, or its tokenizer.json: prompts are then "
            "counted in the engines' own tokens. NAME=PATH for one model of several; give it once for each."
        ),
        About("Exact tokens", "PATH", "Estimates from bytes, corrected by what engines report, find warm replicas."),
    ] = ()
    chat_template: Annotated[
        Path | None,
        Field(description="File with the chat template that the engines were started with instead of the models' own."),
        About("Exact tokens", "FILE", "Most engines use the one that comes with the model."),
    ] = None
    tokenizer_deadline_ms: Annotated[
        float,
        Field(
            gt=0,
            le=10_000,
            description="Milliseconds that a request waits for its tokens; after that it goes by its bytes.",
        ),
        About(
            "Exact tokens",
            "MILLISECONDS",
            "A known conversation takes 1 to 3; new text of 20,000 tokens takes this long, and its prefill seconds.",
        ),
    ] = 50.0
