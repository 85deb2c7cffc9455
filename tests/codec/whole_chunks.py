"""All lines of a chunk at once; the command writes them in pieces."""

from typing import Any

from muster.codec.columns.chunks import Chunk
from muster.codec.columns.dump_json import json_pieces
from muster.codec.columns.dump_text import text_pieces


def render_text(chunk: Chunk, **settings: Any) -> bytes:
    return b"".join(text_pieces(chunk, **settings))


def render_json(chunk: Chunk, **settings: Any) -> bytes:
    return b"".join(json_pieces(chunk, **settings))
