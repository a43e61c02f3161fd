"""Batches as a vLLM 0.32.0 published them (CPU build, blocks of 32 tokens), in Base64."""

from base64 import b64decode

STORED = b64decode(
    "k8tB2sNxqDdY/pGMpHR5cGWrQmxvY2tTdG9yZWSsYmxvY2tfaGFzaGVzks8cqksh0dYed885KQodPO9TtbFwYXJlbnRfYmxvY2tf"
    "aGFzaMCpdG9rZW5faWRz3ABAzQEszQEtzQEuzQEvzQEwzQExzQEyzQEzzQE0zQE1zQE2zQE3zQE4zQE5zQE6zQE7zQE8zQE9zQE+"
    "zQE/zQFAzQFBzQFCzQFDzQFEzQFFzQFGzQFHzQFIzQFJzQFKzQFLzQFMzQFNzQFOzQFPzQFQzQFRzQFSzQFTzQFUzQFVzQFWzQFX"
    "zQFYzQFZzQFazQFbzQFczQFdzQFezQFfzQFgzQFhzQFizQFjzQFkzQFlzQFmzQFnzQFozQFpzQFqzQFrqmJsb2NrX3NpemUgp2xv"
    "cmFfaWTApm1lZGl1baNHUFWpbG9yYV9uYW1lwKpleHRyYV9rZXlzksDAqWdyb3VwX2lkeACya3ZfY2FjaGVfc3BlY19raW5krmZ1"
    "bGxfYXR0ZW50aW9uqnNlc3Npb25faWSjYWJjAA=="
)
"""A prompt of the 70 tokens from 300 on, of the session `abc`: two blocks."""

SALTED = b64decode(
    "k8tB2sNxqH65pZGLpHR5cGWrQmxvY2tTdG9yZWSsYmxvY2tfaGFzaGVzks9FrY3cxMaYDs/t0R2nXG2L5bFwYXJlbnRfYmxvY2tf"
    "aGFzaMCpdG9rZW5faWRz3ABAzQEszQEtzQEuzQEvzQEwzQExzQEyzQEzzQE0zQE1zQE2zQE3zQE4zQE5zQE6zQE7zQE8zQE9zQE+"
    "zQE/zQFAzQFBzQFCzQFDzQFEzQFFzQFGzQFHzQFIzQFJzQFKzQFLzQFMzQFNzQFOzQFPzQFQzQFRzQFSzQFTzQFUzQFVzQFWzQFX"
    "zQFYzQFZzQFazQFbzQFczQFdzQFezQFfzQFgzQFhzQFizQFjzQFkzQFlzQFmzQFnzQFozQFpzQFqzQFrqmJsb2NrX3NpemUgp2xv"
    "cmFfaWTApm1lZGl1baNHUFWpbG9yYV9uYW1lwKpleHRyYV9rZXlzkpGodGVuYW50LTHAqWdyb3VwX2lkeACya3ZfY2FjaGVfc3Bl"
    "Y19raW5krmZ1bGxfYXR0ZW50aW9uAA=="
)
"""The same with the cache salt `tenant-1`."""

REMOVED = b64decode(
    "k8tB2sNxqPKBBJSEpHR5cGWsQmxvY2tSZW1vdmVkrGJsb2NrX2hhc2hlc5HP7dEdp1xti+WmbWVkaXVto0dQValncm91cF9pZHgA"
    "hKR0eXBlrEJsb2NrUmVtb3ZlZKxibG9ja19oYXNoZXORz0WtjdzExpgOpm1lZGl1baNHUFWpZ3JvdXBfaWR4AISkdHlwZaxCbG9j"
    "a1JlbW92ZWSsYmxvY2tfaGFzaGVzkc/H+gjECRJVZqZtZWRpdW2jR1BVqWdyb3VwX2lkeACLpHR5cGWrQmxvY2tTdG9yZWSsYmxv"
    "Y2tfaGFzaGVzk89qNdZ7g2kqZ8+DwbkG9kIXRM9/QkUgCK4Uq7FwYXJlbnRfYmxvY2tfaGFzaMCpdG9rZW5faWRz3ABgzQPgzQPh"
    "zQPizQPjzQPkzQPlzQPmzQPnzQPozQPpzQPqzQPrzQPszQPtzQPuzQPvzQPwzQPxzQPyzQPzzQP0zQP1zQP2zQP3zQP4zQP5zQP6"
    "zQP7zQP8zQP9zQP+zQP/zQQAzQQBzQQCzQQDzQQEzQQFzQQGzQQHzQQIzQQJzQQKzQQLzQQMzQQNzQQOzQQPzQQQzQQRzQQSzQQT"
    "zQQUzQQVzQQWzQQXzQQYzQQZzQQazQQbzQQczQQdzQQezQQfzQQgzQQhzQQizQQjzQQkzQQlzQQmzQQnzQQozQQpzQQqzQQrzQQs"
    "zQQtzQQuzQQvzQQwzQQxzQQyzQQzzQQ0zQQ1zQQ2zQQ3zQQ4zQQ5zQQ6zQQ7zQQ8zQQ9zQQ+zQQ/qmJsb2NrX3NpemUgp2xvcmFf"
    "aWTApm1lZGl1baNHUFWpbG9yYV9uYW1lwKpleHRyYV9rZXlzk8DAwKlncm91cF9pZHgAsmt2X2NhY2hlX3NwZWNfa2luZK5mdWxs"
    "X2F0dGVudGlvbgA="
)
"""Blocks that made room for a prompt of 100 tokens."""
