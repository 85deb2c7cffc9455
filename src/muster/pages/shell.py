"""The HTML around a page: the same few lines for every page, served or in a file. What is in a page is drawn from its
JSON by the scripts of `static/`, which put all of it in place as text.
"""

import base64
import hashlib
import json
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

STATIC = "/static/"
SCRIPTS = ("dom.js", "live.js", "plot.js", "timeline.js", "views.js", "group.js", "served.js", "app.js")
REPORT_SCRIPTS = ("dom.js", "live.js", "plot.js", "timeline.js", "views.js", "group.js", "embedded.js", "app.js")
STYLE = "style.css"
CONTENT_TYPES = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8"}


def as_json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")


def inert(content: bytes) -> Markup:
    """JSON that can stand in a script element: nothing in it ends that."""
    text = content.decode("utf-8", "replace")
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def served_page(content: bytes) -> bytes:
    """A page with its content in it, so that one request is enough to see it."""
    template = _templates().get_template("served.html")
    return template.render(content=inert(content), static=STATIC, style=STYLE, scripts=SCRIPTS).encode()


def report_page(content: bytes, blocks: list[str]) -> bytes:
    """One file with everything in it. The policy in it names its script and its style by their hashes."""
    script, style = "\n".join(_text(name) for name in REPORT_SCRIPTS), _text(STYLE)
    policy = (
        f"default-src 'none'; script-src 'sha256-{_digest(script)}'; style-src 'sha256-{_digest(style)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    template = _templates().get_template("report.html")
    return template.render(
        content=inert(content), blocks=blocks, policy=policy, script=Markup(script), style=Markup(style)
    ).encode()


def static_file(name: str) -> tuple[str, bytes] | None:
    """Content type and content of a script or the style; None: there is none of this name."""
    if name not in (*SCRIPTS, STYLE):
        return None
    return CONTENT_TYPES[name[name.rindex(".") :]], _text(name).encode()


@cache
def _text(name: str) -> str:
    return (files("muster.pages") / "static" / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@cache
def _templates() -> Environment:
    return Environment(loader=PackageLoader("muster.pages"), autoescape=True, undefined=StrictUndefined)
