"""The lines of golden/*.hex by name."""

from pathlib import Path


def golden(file: str) -> dict[str, bytes]:
    text = (Path(__file__).parent / "golden" / file).read_text(encoding="utf-8")
    lines = [line.split("=") for line in text.splitlines() if line and not line.startswith("#")]
    return {name.strip(): bytes.fromhex(data) for name, data in lines}
