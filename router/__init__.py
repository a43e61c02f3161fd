"""Warmroute: an HTTP router that sends a chat's next turn to the vLLM replica whose KV cache is warm."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    __version__: str
else:

    def __getattr__(name: str) -> str:
        """Read the version when it is asked for: importlib.metadata takes longer than all of `warmroute health`."""
        if name != "__version__":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib.metadata import version

        return version("warmroute")
