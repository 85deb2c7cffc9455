"""Compile the kernels into the shared cache, so that no command waits for it: `python -m muster.codec.columns.warm`."""

import importlib
import pkgutil
import time

from muster.codec import columns


def compile_all() -> None:
    for module in pkgutil.iter_modules(columns.__path__):
        importlib.import_module(f"{columns.__name__}.{module.name}")


def main() -> None:
    started = time.perf_counter()
    compile_all()
    print(f"kernels ready in {time.perf_counter() - started:.1f} s")


if __name__ == "__main__":
    main()
