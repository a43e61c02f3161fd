"""What an engine itself says it holds, from its KV cache events."""
