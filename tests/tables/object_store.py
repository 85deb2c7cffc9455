"""moto's server, which answers as S3 does, counting what it is asked: `python -m tests.tables.object_store PORT`.

`GET /__requests` gives all requests since the start, as a JSON list of methods and paths. Nothing with
`for-good/` in its key may be deleted.
"""

import json
import logging
import sys
from io import BytesIO
from typing import Any

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple


class Counted:
    def __init__(self) -> None:
        self._answer = DomainDispatcherApplication(create_backend_app)
        self._requests: list[tuple[str, str]] = []

    def __call__(self, environment: dict[str, Any], start: Any) -> Any:
        path = environment["PATH_INFO"]
        if path == "/__requests":
            start("200 OK", [("Content-Type", "application/json")])
            return [json.dumps(self._requests).encode()]
        self._requests.append((environment["REQUEST_METHOD"], path))
        if _deletes_for_good(environment):
            start("403 Forbidden", [("Content-Type", "application/xml")])
            return [b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"]
        return self._answer(environment, start)


def _deletes_for_good(environment: dict[str, Any]) -> bool:
    """Whether a request deletes what may not be deleted. Several keys at once are in its body."""
    if environment["REQUEST_METHOD"] != "POST" or not environment["QUERY_STRING"].startswith("delete"):
        return False
    body = environment["wsgi.input"].read(int(environment.get("CONTENT_LENGTH") or 0))
    environment["wsgi.input"] = BytesIO(body)
    return b"for-good/" in body


if __name__ == "__main__":
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    run_simple("127.0.0.1", int(sys.argv[1]), Counted(), threaded=True)
