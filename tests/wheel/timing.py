"""How long a fresh process takes for one thing: wall and CPU seconds, those of its children among them."""

import os
import sys
import time

THINGS = {
    "import muster": "import muster",
    "muster --help": "from muster.cli.main import main; main(['--help'])",
    "with Broker()": "import muster\nwith muster.Broker(): pass",
}


def main() -> None:
    for name, program in THINGS.items():
        wall_s, cpu_s = min(_run(program) for _ in range(3))
        print(f"{name:<14} {wall_s:.2f} s, {cpu_s:.2f} CPU s", flush=True)


def _run(program: str) -> tuple[float, float]:
    before, started = os.times(), time.perf_counter()
    silent = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    child = os.posix_spawn(sys.executable, [sys.executable, "-c", program], os.environ, file_actions=silent)
    _, status = os.waitpid(child, 0)
    assert status == 0, program
    after = os.times()
    cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
    return time.perf_counter() - started, cpu_s


if __name__ == "__main__":
    main()
