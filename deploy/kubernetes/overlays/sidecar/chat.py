"""A chat application of the smallest kind: one chat after the other, four turns each, through the router beside it."""

import os
import time

import httpx

PAUSE_S = float(os.environ.get("PAUSE_S", "5"))
SYSTEM = {"role": "system", "content": "You answer questions about trains. " * 100}


def chat(client: httpx.Client) -> None:
    """Send the whole history with each turn, as chat clients do."""
    model = client.get("models").raise_for_status().json()["data"][0]["id"]
    messages = [SYSTEM]
    for turn in range(1, 5):
        messages.append({"role": "user", "content": f"Question {turn}: when does the next one leave?"})
        body = {"model": model, "messages": messages, "max_tokens": 32}
        answer = client.post("chat/completions", json=body).raise_for_status()
        messages.append(answer.json()["choices"][0]["message"])
        cached_tokens = (answer.json()["usage"].get("prompt_tokens_details") or {}).get("cached_tokens")
        print(f"turn {turn}: {answer.headers['x-warmroute-decision']}, {cached_tokens} tokens cached", flush=True)
        time.sleep(PAUSE_S)


with httpx.Client(base_url=os.environ["OPENAI_BASE_URL"], timeout=120, trust_env=False) as client:
    while True:
        try:
            chat(client)
        except (httpx.HTTPError, IndexError) as error:
            print(f"not now: {error!r}", flush=True)
            time.sleep(PAUSE_S)
