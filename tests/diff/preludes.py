"""Short ways into every state, and the requests to be fired into it: the two tables in `scripts/`, read."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).with_name("scripts")


@dataclass(frozen=True, slots=True)
class Prelude:
    name: str
    lines: tuple[str, ...]
    people: str
    """Who is there, by letter."""
    static: bool
    kind: str
    delay_ms: int

    def says(self, who: str) -> str:
        """What a member of this group adds to a request to say who it is."""
        return f" instance=i{who}" if self.static else ""


@dataclass(frozen=True, slots=True)
class Variant:
    request: str
    name: str
    lines: tuple[str, ...]
    people: str
    static: bool

    def makes_sense_after(self, prelude: Prelude) -> bool:
        return set(self.people) <= set(prelude.people) and (prelude.static or not self.static)


@dataclass(frozen=True, slots=True)
class _Named:
    """A name with what stands in brackets behind it: `stable [ab static delay=9]`."""

    name: str
    people: str
    static: bool
    options: dict[str, str]

    @classmethod
    def read(cls, text: str) -> "_Named":
        name, _, rest = text.strip().rstrip("]").partition(" [")
        words = rest.split()
        options = dict(word.split("=") for word in words if "=" in word)
        people = [word for word in words if "=" not in word and word != "static"]
        return cls(name, "".join(people), "static" in words, options)


def _sections(file: str) -> Iterator[tuple[str, list[str]]]:
    """Headings and the lines below them; what stands above the first is for the reader."""
    for section in (FOLDER / file).read_text(encoding="utf-8").split("\n## ")[1:]:
        heading, *lines = section.split("\n")
        yield heading, [line for line in lines if line]


def preludes() -> list[Prelude]:
    sections = {
        _Named.read(heading).name: (_Named.read(heading), lines) for heading, lines in _sections("preludes.txt")
    }

    def steps(name: str) -> Iterator[str]:
        for line in sections[name][1]:
            if line.startswith("after "):
                yield from steps(line.removeprefix("after "))
            else:
                yield line

    return [
        Prelude(
            name,
            tuple(steps(name)),
            said.people,
            said.static,
            said.options.get("type", "consumer"),
            int(said.options.get("delay", 0)),
        )
        for name, (said, _) in sections.items()
    ]


def variants() -> list[Variant]:
    sections = dict(_sections("variants.txt"))
    who = [line.partition(": ") for line in sections.pop("who")]
    found: list[Variant] = []
    for request, lines in sections.items():
        for line in lines:
            heading, _, steps = line.partition(": ")
            for name, _, says in who if "{who}" in line else [("", "", "")]:
                said, of_whom = _Named.read(heading), _Named.read(name)
                found.append(
                    Variant(
                        request,
                        said.name.replace("{who}", of_whom.name),
                        tuple(each.strip() for each in steps.replace("{who}", says).split(";")),
                        said.people + of_whom.people,
                        said.static or of_whom.static,
                    )
                )
    assert len({(each.request, each.name) for each in found}) == len(found), "two variants of one name"
    assert not re.search(r"\{who\}", " ".join(line for each in found for line in each.lines))
    return found
