"""The edge of the server is light: nothing heavy comes with it, and no layout before it is used."""

import json
import subprocess
import sys
from pathlib import Path

import muster.server.wire

FOLDER = Path(muster.server.wire.__file__).parent
LOADED = """
import importlib, json, sys
from muster.protocol import messages
for name in sys.argv[1:]:
    importlib.import_module(f"muster.server.wire.{name}")
before = messages.message.cache_info().currsize
messages.encode_request(3, 12, 1, None, {})
after = messages.message.cache_info().currsize
print(json.dumps([before, after, sorted({name.split(".")[0] for name in sys.modules})]))
"""


def test_nothing_heavy_is_loaded_and_no_layout_before_it_is_used() -> None:
    modules = [path.stem for path in FOLDER.glob("*.py") if path.stem != "__init__"]
    assert "offset_commit" in modules
    done = subprocess.run([sys.executable, "-c", LOADED, *modules], capture_output=True, text=True, check=True)
    before, after, packages = json.loads(done.stdout)
    assert (before, after) == (0, 1)
    assert not {"numpy", "numba", "pyarrow", "kio", "asyncio"} & set(packages)
