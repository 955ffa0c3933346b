"""An HTML file as a reader sees it: headings, tables, pictures, anchors, and what it would load from elsewhere."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path


class Page(HTMLParser):
    """`report.html` of a folder.

    Attributes:
        headings: texts of `h1` to `h3`, in order.
        ids, links: every `id`, and every `href` that does not stand inside a picture.
        classes: all class names.
        pictures: `aria-label` of every `svg`.
        outside: addresses that a browser would load.
        texts: cells of each table by row, under the heading before it.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.headings: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.classes: set[str] = set()
        self.pictures: list[str] = []
        self.outside: list[str] = []
        self.tables: list[tuple[str, list[list[str]]]] = []
        self._open: list[str] = []
        self.source = (folder / "report.html").read_text()
        self.feed(self.source)

    def table(self, heading: str) -> list[list[str]]:
        """Body rows of the first table below `heading`."""
        return next(rows for title, rows in self.tables if title == heading)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self._open.append(tag)
        self.ids += [values["id"]] if "id" in values else []
        self.classes.update(values.get("class", "").split())
        self.links += [values["href"]] if tag == "a" else []
        self.outside += [values[name] for name in ("src", "srcset", "data") if name in values]
        self.outside += [values["href"]] if tag == "link" else []
        if tag in ("h1", "h2", "h3"):
            self.headings.append("")
        elif tag == "svg":
            self.pictures.append(values["aria-label"])
        elif tag == "table":
            self.tables.append((self.headings[-1].strip(), []))
        elif tag == "tr" and "tbody" in self._open:
            self.tables[-1][1].append([])
        elif tag == "td":
            self.tables[-1][1][-1].append("")

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if {"h1", "h2", "h3"} & set(self._open):
            self.headings[-1] += data
        elif "td" in self._open:
            self.tables[-1][1][-1][-1] = f"{self.tables[-1][1][-1][-1]} {data}".strip()
