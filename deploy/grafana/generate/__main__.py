"""Writes the dashboards: `python -m deploy.grafana.generate`, from the project's folder."""

from __future__ import annotations

import json
from pathlib import Path

from deploy.grafana.generate.fleet import fleet
from deploy.grafana.generate.hits import hits

FOLDER = Path(__file__).parents[1] / "dashboards"


def texts() -> dict[str, str]:
    """Return the files by their names."""
    return {f"{made['uid']}.json": json.dumps(made, indent=2) + "\n" for made in (hits(), fleet())}


def main() -> None:
    """Write them."""
    for name, text in texts().items():
        (FOLDER / name).write_text(text)


if __name__ == "__main__":
    main()
