"""What Spark on one machine starts to fork its Python workers from: `early_daemon`, by a name that Spark can be given.

The folder that the user is in comes first where Python looks for modules, and may have a `socket.py`. It is put back
before there are workers, whose code may want modules from there.
"""

import sys

if __name__ == "__main__":
    here = [] if sys.flags.safe_path else [sys.path.pop(0)]

    from muster.pipeline.spark.early_daemon import main

    main(sys.argv[1:], here)
