"""Follows the KV cache events that vLLM engines publish over ZMQ. Needs the extra `kv-events`."""
