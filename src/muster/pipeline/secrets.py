"""Secrets stay where they are: a task is told where to look.

Settings that came from a file travel without their secrets (`config.client.without_secrets`), and references travel
as they are. What remains is a secret that a program passes as text. On one machine it is put into a file that only
this user may read, for as long as the run takes; on a cluster it is refused.
"""

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from muster.errors import BadInput
from muster.references import literal_secrets


@contextmanager
def put_aside(settings: Mapping[str, str], is_local: bool) -> Iterator[dict[str, str]]:
    """The settings with references for secrets."""
    names = literal_secrets(settings)
    if not names:
        yield dict(settings)
        return
    if not is_local:
        raise BadInput(
            f"{names[0]} is given as text, and would travel to every worker, and lie in Spark's temporary files. Give "
            "it as ${env:NAME} or ${file:PATH}, and have the variable or the file on every worker."
        )
    with tempfile.TemporaryDirectory(prefix="muster-secrets-") as folder:  # nobody else may enter
        references = {}
        for number, name in enumerate(names):
            place = Path(folder) / str(number)
            with os.fdopen(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
                file.write(settings[name] + "\n")
            references[name] = f"${{file:{place}}}"
        yield {**settings, **references}
