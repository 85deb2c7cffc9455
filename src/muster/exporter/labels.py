"""Names as values of labels. Clients choose them: they may be any bytes, of any length."""

from hashlib import blake2b

LONGEST = 300
"""Characters; Kafka's own topics have 249 at most."""
_DIGEST_BYTES = 6


def label(name: str) -> str:
    """Text in UTF-8: other bytes are written as `\\xNN`, and what is very long ends in a digest of the whole."""
    if len(name) <= LONGEST and name.isascii():
        return name
    data = name.encode("utf-8", "surrogateescape")
    text = data.decode("utf-8", "backslashreplace")
    if len(text) <= LONGEST:
        return text
    return f"{text[:LONGEST]}…{blake2b(data, digest_size=_DIGEST_BYTES).hexdigest()}"
