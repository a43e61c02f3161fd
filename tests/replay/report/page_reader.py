"""A replay's page as a reader finds it: its tables' cells, its plots, what it would load."""

from html.parser import HTMLParser


class PageReader(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tables: list[list[list[str]]] = []
        self.captions: list[str] = []
        self.answers: list[str] = []
        self.plots: list[str] = []
        self.marks: list[str] = []
        self.lines: list[str] = []
        """Path data of each line in a plot."""
        self.loads: list[str] = []
        self.open: list[str] = []
        self._into: list[str] | None = None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.loads += [value for name, value in given.items() if name in {"src", "href", "action", "srcset"}]
        kind = given.get("class", "")
        if tag not in {"meta", "path", "circle"}:
            self.open.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag == "svg" and given.get("role") == "img":
            self.plots.append(given["aria-label"])
        elif tag == "path" and kind == "line" and "svg" in self.open and "figure" in self.open:
            self.lines.append(given["d"])
        self._into = (
            self.tables[-1][-1] if tag in {"td", "th"}
            else self.captions if tag == "caption"
            else self.answers if tag == "p" and kind == "answer"
            else self.marks if tag == "text" and kind == "mark"
            else None
        )  # fmt: skip

    def handle_endtag(self, tag: str) -> None:
        if tag not in {"path", "circle"}:
            assert self.open.pop() == tag
        self._into = None

    def handle_data(self, data: str) -> None:
        if self._into is not None:
            self._into.append(data)
