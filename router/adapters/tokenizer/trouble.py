"""What can go wrong, as types. Nothing here needs a package that may be missing."""

from __future__ import annotations


class TokenizerFileError(ValueError):
    """A model's files can't be used; the text is one line for the person who named them."""


class Unrendered(Exception):
    """The request has something in it that can't be rendered exactly; the text says what."""
