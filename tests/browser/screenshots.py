"""Makes the pictures of docs/how-to/read-the-dashboard.md: a live router, simulated replicas, chats, some careless.

Run it as `python -m tests.browser.screenshots [SECONDS] [DIRECTORY]`.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
from playwright.async_api import Browser, Page, async_playwright

from router.app.demo.processes import RouterUrls, router, simulated_fleet
from router.sim.types import EngineConfig
from router.sim.workload import ChatSession, ChatTurn, ChatWorkload
from tests.browser.chromium import ARGUMENTS, executable
from tests.rig.client import CHAT, Client, request

IMAGES = Path(__file__).parents[2] / "docs" / "images"
REPLICAS = 4
KV_TOKENS = 260_000
"""Small enough that the slowest users come back too late within two minutes."""
TIME_SCALE = 5.0
SESSIONS_PER_S = 1.6
MODELS = ("harbour-70b", "harbour-70b", "harbour-70b", "harbour-legal-lora")
STREAMED = {"stream": True, "stream_options": {"include_usage": True}}

Messages = list[dict[str, str]]


@dataclass
class Careless:
    """A session whose client changes its history before it sends it."""

    session: ChatSession
    change: Callable[[ChatTurn], Messages]

    @property
    def starts_s(self) -> float:
        return self.session.starts_s

    def next_turn(self, answer: str | None = None) -> ChatTurn | None:
        turn = self.session.next_turn(answer)
        return None if turn is None else replace(turn, messages=self.change(turn))


def stamp(turn: ChatTurn) -> Messages:
    """The time of day at the head of the system prompt."""
    system, *rest = turn.messages
    return [system | {"content": f"It is 12:{turn.number:02}. {system['content']}"}, *rest]


def trim(turn: ChatTurn) -> Messages:
    """The last three messages, and the system prompt."""
    return [turn.messages[0], *turn.messages[1:][-3:]]


def rewrite(turn: ChatTurn) -> Messages:
    """Another system prompt from the third turn on."""
    system, *rest = turn.messages
    return [system | {"content": f"Be brief. {system['content']}"}, *rest] if turn.number > 2 else turn.messages


CARELESS = {3: stamp, 9: trim, 14: rewrite}
"""Of each twenty sessions."""


def sessions(seconds: float) -> Iterator[Any]:
    for number, session in enumerate(ChatWorkload(SESSIONS_PER_S, seconds * TIME_SCALE, seed=11).sessions()):
        change = CARELESS.get(number % 20)
        yield session if change is None else Careless(session, change)


async def looks(browser: Browser, url: str, scheme: Any, width: int, height: int, scale: float = 1) -> Page:
    """Open the page; wait until all of it is drawn."""
    page = await browser.new_page(
        viewport={"width": width, "height": height},
        color_scheme=scheme,
        device_scale_factor=scale,
        reduced_motion="reduce",
    )
    await page.goto(url)
    await page.locator("#windows input[value='5m']").locator("xpath=..").click()
    await page.locator("figure.chart .legend b").first.wait_for(state="attached")
    await page.locator("#misses tbody tr").first.wait_for()
    return page


async def pictures(admin: str, directory: Path) -> None:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=executable(), args=list(ARGUMENTS))
        page = await looks(browser, admin, "light", 1360, 900)
        await page.screenshot(path=directory / "dashboard.png")
        await page.screenshot(
            path=directory / "dashboard-charts.png", full_page=True, clip=await place(page, "#charts")
        )
        await page.locator("#misses button[data-session]").nth(await longest(admin, page)).click()
        await page.locator("dialog .why").first.wait_for()
        await page.locator("dialog").screenshot(path=directory / "dashboard-session.png")
        page = await looks(browser, admin, "dark", 1360, 900)
        await page.screenshot(path=directory / "dashboard-dark.png")
        page = await looks(browser, admin, "light", 375, 812, scale=2)
        await page.screenshot(path=directory / "dashboard-phone.png")
        await browser.close()


async def place(page: Page, selector: str) -> Any:
    """Where something is on the whole page; a picture of it alone would have the header before it."""
    return await page.evaluate(
        """selector => {
            const { x, y, width, height } = document.querySelector(selector).getBoundingClientRect();
            return { x: x - 12, y: y + scrollY - 8, width: width + 24, height: height + 16 };
        }""",
        selector,
    )


async def longest(admin: str, page: Page) -> int:
    """Which of the missed turns shown is of the session with the most turns that still fits a picture."""
    async with httpx.AsyncClient(base_url=admin, trust_env=False) as client:
        turns = {each["session"]: each["turns"] for each in (await client.get("/api/sessions?limit=1000")).json()}
    shown = await page.locator("#misses button[data-session]").all_inner_texts()
    return max(range(len(shown)), key=lambda at: turns.get(shown[at], 0) if turns.get(shown[at], 0) <= 7 else 0)


async def chat(port: int, seconds: float) -> None:
    """Have all sessions talk, each when it is its time."""
    async with asyncio.TaskGroup() as all_of_them:
        for number, session in enumerate(sessions(seconds)):
            all_of_them.create_task(converse(port, session, MODELS[number % len(MODELS)]))


async def converse(port: int, session: Any, model: str) -> None:
    await asyncio.sleep(session.starts_s / TIME_SCALE)
    client = await Client.open(port)
    turn = session.next_turn()
    while turn is not None:
        await asyncio.sleep(turn.think_s / TIME_SCALE)
        said = {"model": model, "messages": turn.messages, "max_tokens": turn.max_tokens, "ignore_eos": True}
        answer = await client.ask(request(CHAT, said | STREAMED))
        events = [event for event in answer.events() if event != "[DONE]"]
        text = "".join(choice["delta"].get("content") or "" for event in events for choice in event["choices"])
        turn = session.next_turn(text)
    client.leave()


def chat_apart(port: int, seconds: float) -> None:
    """The chats' own process: the pictures are not to wait for them."""
    asyncio.run(chat(port, seconds))


def look_at(urls: RouterUrls, seconds: float, directory: Path) -> None:
    """Chat, and look while the chats go on."""
    chats = get_context("spawn").Process(target=chat_apart, args=(urlsplit(urls.clients).port, 3 * seconds))
    chats.start()
    try:
        time.sleep(seconds)
        asyncio.run(pictures(urls.admin.rstrip("/") + "/", directory))
    finally:
        chats.kill()
        chats.join()


def main(seconds: float = 100.0, directory: Path = IMAGES) -> None:
    """Start the fleet and the router, and end them."""
    fleet = ["--time-scale", str(TIME_SCALE), "--stream-interval", "16", "--kv-tokens", str(KV_TOKENS)]
    fleet += [part for model in dict.fromkeys(MODELS) for part in ("--model", model)]
    rate = ["--prefill-tokens-per-s", str(EngineConfig().prefill_tokens_per_s * TIME_SCALE)]
    with simulated_fleet(REPLICAS, fleet) as urls, router(urls, ["--port", "0", "--admin-port", "0", *rate]) as running:
        look_at(running, seconds, directory)


if __name__ == "__main__":
    main(*(convert(given) for convert, given in zip((float, Path), sys.argv[1:], strict=False)))
