"""The page docs/reference/settings.md, made from the settings."""

from itertools import groupby

from pydantic.fields import FieldInfo

from router.app.settings.model import ENVIRONMENT_PREFIX, Settings
from router.app.settings.sources import CONFIG_VARIABLE
from router.app.settings.text import about, range_text, shown

_HEAD = f"""\
# Settings

<!-- Made by `warmroute settings-reference > docs/reference/settings.md`; a test compares it with the code. -->

`warmroute serve` and `warmroute check-config` take every setting in three ways. The first that gives one wins:

1. a flag, with `-` for `_`: `--max-retries 1`
2. an environment variable, in capitals: `{ENVIRONMENT_PREFIX}MAX_RETRIES=1`; an empty one counts as not given
3. a key of the TOML file named by `--config FILE` or `{CONFIG_VARIABLE}`: `max_retries = 1`

Lists are repeated flags (`--replica URL --replica URL`), text with commas or a JSON list in the environment, and
arrays in TOML. A list replaces the list of a weaker source as a whole. Sizes in bytes accept units: `64MiB`, `1GiB`.

An unknown flag, variable or key, and a value out of range, end the program with one line on stderr and exit code 2.
Variables that Kubernetes makes for a Service called `warmroute` (`{ENVIRONMENT_PREFIX}SERVICE_HOST`,
`{ENVIRONMENT_PREFIX}PORT=tcp://...`) are passed over. `warmroute check-config` prints what is in force and where each
value came from. Where a row says `reload`, a running router [takes another
value](../how-to/stop-and-reload.md#reload) from its file; the others need a restart.
"""


def markdown() -> str:
    """The page: one table for each group of settings, in the order of the model."""
    groups = groupby(Settings.model_fields.items(), key=lambda item: about(item[1]).group)
    return _HEAD + "".join(_section(name, dict(fields)) for name, fields in groups)


def _section(name: str, fields: dict[str, FieldInfo]) -> str:
    rows = "\n".join(_row(*item) for item in fields.items())
    columns = ["setting", "default", "range", "changed by", "meaning", "why this default"]
    head = f"| {' | '.join(columns)} |\n| {' | '.join(['---'] * len(columns))} |"
    return f"\n## {name}\n\n{head}\n{rows}\n"


def _row(name: str, field: FieldInfo) -> str:
    said = about(field)
    change = "reload" if said.live else "restart"
    cells = [f"`{name}`", shown(field.default), range_text(field), change, field.description or "", said.why]
    return f"| {' | '.join(cells)} |"
