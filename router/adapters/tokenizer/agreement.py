"""Whether the engines count as many tokens as were made here. Where they mostly do not, files or flags differ."""

from __future__ import annotations

KEPT = 32
"""Answers that are looked back on: a minute of one busy replica, so that a new template is noticed soon."""

ENOUGH = 8
"""Answers before anything is concluded."""

TRIED_EVERY = 16
"""Of the requests of a model that is not trusted, one in so many is tokenised all the same: engines get new files."""


class Agreement:
    """One model's answers, agreeing or not."""

    __slots__ = ("_answers", "_passed", "agreed", "disagreed")

    def __init__(self) -> None:
        self._answers = 0
        """The last ones, one bit each behind a leading 1: 1 where the counts were equal."""
        self._passed = 0
        self.agreed = self.disagreed = 0

    @property
    def trusted(self) -> bool:
        """Whether half of the last answers agreed, or too few came to tell."""
        seen = max(0, self._answers.bit_length() - 1)
        return seen < ENOUGH or 2 * (self._answers.bit_count() - 1) >= seen

    def wanted(self) -> bool:
        """Tell whether the next request is to be tokenised."""
        if self.trusted:
            return True
        self._passed += 1
        return self._passed % TRIED_EVERY == 0

    def answered(self, agrees: bool) -> bool:
        """Take in an answer; tell whether trust was lost, or regained, with it."""
        before = self.trusted
        self._answers = (self._answers or 1) << 1 | agrees
        if self._answers.bit_length() > KEPT + 1:
            self._answers = self._answers & ((1 << KEPT) - 1) | 1 << KEPT
        self.agreed += agrees
        self.disagreed += not agrees
        return before != self.trusted
