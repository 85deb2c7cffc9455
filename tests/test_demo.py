"""The demo runs, and its own check holds."""

import subprocess
import sys
from pathlib import Path

DEMO = Path(__file__).parent.parent / "examples" / "demo.py"


def test_the_demo_agrees_with_the_broker() -> None:
    run = subprocess.run([sys.executable, str(DEMO)], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "✓ all 93 committed offsets of 28 groups" in run.stdout
