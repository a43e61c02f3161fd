"""The data plane: two asyncio protocols joined without a task per chunk, and what they read on the way."""
