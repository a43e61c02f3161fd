"""A simulated vLLM: paged KV cache, scheduler, tokenizer and workloads (pure), and the HTTP server around them."""
