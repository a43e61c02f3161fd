"""Warmroute: an HTTP router that sends a chat's next turn to the vLLM replica whose KV cache is warm."""

from importlib.metadata import version

__version__ = version("warmroute")
