"""Messages to try the codecs with, made from the layouts themselves; and names, good and bad."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from muster.codec.layouts import Field
from muster.protocol.apis import APIS, Api
from muster.protocol.messages import message

patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""Others use this machine too."""
more_at_length = pytest.mark.parametrize(
    "again", [0, *(pytest.param(number, marks=pytest.mark.long) for number in range(1, 4))]
)
"""A property with a few examples every day, and with four times as many in `make long`."""

INTEGERS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}

names = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
"""Text that any UTF-8 can carry."""
odd_names = st.binary(max_size=20).map(lambda data: data.decode("utf-8", "surrogateescape"))
"""Text made of any bytes."""
long_names = st.integers(120, 300).map(lambda size: "n" * size) | st.text("\x00\x01\x02", min_size=120, max_size=300)
"""Text whose length takes more than one byte in the newer versions, and which looks like lengths itself."""
texts = st.one_of(names, odd_names, long_names)
int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)


Special = Callable[[Field], st.SearchStrategy[Any] | None]
"""What to put into a field instead of what its type allows; None for nothing special."""


def bodies(
    api_key: int,
    version: int,
    direction: str,
    text: st.SearchStrategy[str] = texts,
    special: Special = lambda field: None,
) -> st.SearchStrategy[Any]:
    """Whole messages of one version: every field it has, and no other."""
    return _Bodies(version, text, special).structs(message(api_key, direction).fields)


class _Bodies:
    def __init__(self, version: int, text: st.SearchStrategy[str], special: Special) -> None:
        self._version = version
        self._text = text
        self._special = special

    def structs(self, fields: tuple[Field, ...]) -> st.SearchStrategy[Any]:
        return st.fixed_dictionaries(
            {field.name: self._values(field) for field in fields if self._version in field.versions}
        )

    def _values(self, field: Field) -> st.SearchStrategy[Any]:
        values = self._special(field)
        if values is None:
            values = self._singles(field)
        if field.is_array:
            values = st.lists(values, max_size=3)
        return st.none() | values if self._version in field.nullable else values

    def _singles(self, field: Field) -> st.SearchStrategy[Any]:
        match field.kind:
            case "struct":
                return self.structs(field.fields)
            case "string":
                return self._text
            case "bytes" | "records":
                return st.binary(max_size=20) | st.just(bytes(200))
            case "uuid":
                return st.binary(min_size=16, max_size=16)
            case "bool":
                return st.booleans()
            case "uint16":
                return st.integers(0, 2**16 - 1)
            case integer:
                bound = 1 << (INTEGERS[integer] - 1)
                return st.integers(-bound, bound - 1)


every_api = pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
"""A test for each API. Versions are a loop in it: hundreds of tests of a millisecond are seconds of bookkeeping."""


def versions_of(api: Api) -> range:
    """Those that are served."""
    return range(api.min_version, api.max_version + 1)
