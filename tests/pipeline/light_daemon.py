"""The daemon without the libraries that tasks need: to import them takes a second of processor time each time."""

import sys

if __name__ == "__main__":
    here = [] if sys.flags.safe_path else [sys.path.pop(0)]

    from muster.pipeline.spark import early_daemon

    early_daemon.import_all = lambda: None
    early_daemon.main(sys.argv[1:], here)
