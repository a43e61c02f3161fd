"""Traffic of which the answer is known: five people, three turns each, 34 s apart, as a Bailian trace."""

from __future__ import annotations

import json
from pathlib import Path

PEOPLE, TURNS, BLOCKS = 5, 3, 100
"""Of 16 tokens, that a turn brings: 0.2 s of prefill by the default engine."""


def people_file(folder: Path, speed: float = 1.0, longer: float = 1.0) -> Path:
    """Write them: `speed` times as fast, prompts `longer` times as long."""
    blocks = int(BLOCKS * longer)
    turns = [(6.8 * person + 34.0 * number, person, number) for number in range(TURNS) for person in range(PEOPLE)]
    lines = [
        {
            "chat_id": person * 10 + number,
            "parent_chat_id": person * 10 + number - 1 if number else -1,
            "timestamp": at_s / speed,
            "input_length": 16 * blocks * (number + 1),
            "output_length": 20,
            "hash_ids": list(range(person * 10_000, person * 10_000 + blocks * (number + 1))),
        }
        for at_s, person, number in turns
    ]
    path = folder / f"people-{speed:g}-{longer:g}.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    return path
