"""Prompts as the engine's own tokens: the model's tokenizer and chat template, beside the event loop.

What vLLM makes of a request is made here again, from the same two files: messages become a conversation, the chat
template renders it, the tokenizer makes ids of the text. What can't be rendered exactly is not rendered at all.
"""
