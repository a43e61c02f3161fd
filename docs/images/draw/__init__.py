"""Draws README's picture from a decision that the router's own core takes: `python -m docs.images.draw`."""
