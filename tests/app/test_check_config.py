"""check-config on a terminal: a table whose rows that were set stand out."""

import io

from rich.console import Console

from router.app.settings.check import print_settings
from router.app.settings.model import Settings
from router.app.settings.sources import load


def printed(**flags: object) -> str:
    written = io.StringIO()
    console = Console(file=written, force_terminal=True, width=100, color_system="standard")
    print_settings(load(flags), console, as_json_text=False)
    return written.getvalue()


def test_every_setting_has_a_row() -> None:
    text = printed()
    for name in Settings.model_fields:
        assert name in text


def test_what_was_set_stands_out() -> None:
    bold, dim = "\x1b[1m", "\x1b[2m"
    rows = printed(port="1234").splitlines()
    assert bold in next(row for row in rows if "1234" in row)
    assert dim in next(row for row in rows if "admin_port" in row)


def test_replicas_stand_below_each_other() -> None:
    rows = printed(replica=["http://a:1", "http://b:2"]).splitlines()
    assert [row for row in rows if "http://a:1" in row] != [row for row in rows if "http://b:2" in row]
    assert sum("http://" in row for row in rows) == 2
