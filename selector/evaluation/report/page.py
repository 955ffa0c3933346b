"""The report's page: one HTML file without outside resources, for a phone or a desk, light or dark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

STYLE = """
:root{--bg:#f6f7f9;--card:#fff;--ink:#14171f;--soft:#5d6675;--line:#e3e6eb;--gain:#12805c;--loss:#c0392b;
--even:#7a6200;--gain-bg:#dff5ec;--loss-bg:#fde5e2;--even-bg:#fbf1cf;--accent:#7c4dff}
@media (prefers-color-scheme:dark){:root{--bg:#0f1116;--card:#181b22;--ink:#e8eaf0;--soft:#9aa3b2;--line:#2a2f3a;
--gain:#5fd3a6;--loss:#ff8f85;--even:#e3c55b;--gain-bg:#12352a;--loss-bg:#41201d;--even-bg:#3a3213;--accent:#a78bfa}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--ink);font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
main{max-width:1240px;margin:0 auto;padding:28px 16px 64px}
h1{font-size:1.7rem;line-height:1.2;margin:.2em 0}h2{font-size:1.25rem;margin:2.2em 0 .7em}
h3{font-size:1rem;margin:0 0 .5em}p{margin:.45em 0}.soft{color:var(--soft);font-size:.9rem}
.grid{display:grid;gap:14px;grid-template-columns:repeat(auto-fit,minmax(min(100%,320px),1fr))}
.wide{grid-template-columns:repeat(auto-fit,minmax(min(100%,430px),1fr))}
.columns{columns:2 430px;column-gap:14px}.columns .card{display:inline-block;width:100%;margin:0 0 14px}
.stack .card{margin-bottom:14px}
.card{background:var(--card);border:1px solid var(--line);border-radius:14px;padding:16px;min-width:0}
.card svg{display:block;width:100%;height:auto;max-width:600px;margin:auto}
.card svg *{stroke-linejoin:round;stroke-linecap:butt}
.big{font-size:2.1rem;font-weight:700;line-height:1.15;font-variant-numeric:tabular-nums}
.tag{display:inline-block;border-radius:999px;padding:.1em .7em;font-size:.82rem;font-weight:600}
.gain{color:var(--gain);background:var(--gain-bg)}.loss{color:var(--loss);background:var(--loss-bg)}
.even{color:var(--even);background:var(--even-bg)}
ul{padding-left:1.15em;margin:.5em 0}li{margin:.25em 0}
.scroll{overflow-x:auto}table{border-collapse:collapse;width:100%;font-size:.82rem;font-variant-numeric:tabular-nums}
th,td{padding:.42em .55em;border-bottom:1px solid var(--line);text-align:right;white-space:nowrap}
th:first-child,td:first-child{text-align:left;position:sticky;left:0;background:var(--card)}
th{color:var(--soft);font-weight:600}tr.lose td{color:var(--loss)}
tr.strong td{background:var(--even-bg)}td.text{text-align:left;white-space:normal;overflow-wrap:anywhere}
details{margin:.8em 0}summary{cursor:pointer;font-weight:600}
"""


def page(title: str, body: Iterable[str]) -> str:
    """The whole document; `body` is HTML."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f'<meta name="color-scheme" content="light dark"><title>{escape(title)}</title><style>{STYLE}</style></head>\n'
        f"<body><main>\n{chr(10).join(body)}\n</main></body></html>\n"
    )


def card(title: str, content: str, note: str = "") -> str:
    """A box with a heading; `content` is HTML."""
    caption = f'<p class="soft">{escape(note)}</p>' if note else ""
    return f'<section class="card"><h3>{escape(title)}</h3>{content}{caption}</section>'


def group(cards: Iterable[str], kind: str = "grid") -> str:
    """Boxes side by side where there is room: a `grid` of rows, or `columns` of boxes of any height; or a `stack`."""
    return f'<div class="{kind}">{"".join(cards)}</div>'


def bullets(sentences: Iterable[str]) -> str:
    """A list of sentences."""
    return f"<ul>{''.join(f'<li>{escape(sentence)}</li>' for sentence in sentences)}</ul>"


def tag(verdict: str) -> str:
    """A coloured word: gain, loss, or neither."""
    kind = verdict if verdict in ("gain", "loss") else "even"
    return f'<span class="tag {kind}">{escape(verdict)}</span>'


def table(header: Sequence[str], rows: Iterable[Sequence[str]], classes: Sequence[str] = ()) -> str:
    """A table that scrolls sideways when it must; `classes` gives each row a style."""
    styles = list(classes)
    lines = []
    for index, row in enumerate(rows):
        style = f' class="{styles[index]}"' if index < len(styles) and styles[index] else ""
        lines.append(f"<tr{style}>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>")
    head = "".join(f"<th>{escape(name)}</th>" for name in header)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """Names and values, values may be long."""
    lines = (f'<tr><td>{escape(name)}</td><td class="text">{escape(value)}</td></tr>' for name, value in pairs)
    return f'<div class="scroll"><table><tbody>{"".join(lines)}</tbody></table></div>'
