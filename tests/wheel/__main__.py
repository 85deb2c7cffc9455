"""`make wheel`: build it into `dist`, install it alone, see how large it is, and try it."""

import sys

from tests.wheel.environments import ROOT, Environment, build_wheel
from tests.wheel.trial import CORPORA

MOST_BYTES = 60_000_000
"""Of all that the wheel installs, without extras."""
SOUND_CORPORA = sorted(path.parent.name for path in CORPORA.glob("[!d]*/*.tar.zst"))


def main() -> int:
    folder = ROOT / ".cache" / "wheel"
    folder.mkdir(parents=True, exist_ok=True)
    wheel = build_wheel(ROOT / "dist")
    bare = Environment(folder / "bare")
    bare.install(str(wheel))
    size = bare.installed_bytes
    print(f"{wheel.relative_to(ROOT)}: {wheel.stat().st_size / 1e6:.1f} MB; installed {size / 1e6:.1f} MB", flush=True)
    bare.run("-m", "tests.wheel.timing")
    bare.run("-m", "tests.wheel.trial", *SOUND_CORPORA)
    if size > MOST_BYTES:
        print(f"That is more than {MOST_BYTES / 1e6:.0f} MB: look at what pyproject.toml asks for.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
