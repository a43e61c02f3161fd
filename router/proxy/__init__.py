"""The data plane: two asyncio protocols joined without a task per chunk, and what reads requests and answers on the way."""
