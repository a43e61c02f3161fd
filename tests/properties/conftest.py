"""In the profile `deep` a test may take hours."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Take the limit of a minute off the tests that stand here."""
    if settings.get_current_profile_name() == "deep":
        for item in items:
            if Path(__file__).parent in item.path.parents:
                item.add_marker(pytest.mark.timeout(0))
