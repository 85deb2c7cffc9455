"""What the programs of Python clients share: a line of JSON with an order comes in, a line with the answer goes out.

The programs in other languages do the same. An order is `{"do": "join", "member": "a", ...}`; the answer is
`{"result": ...}`, or `{"error": "..."}` with what the client said.
"""

import json
import sys
from typing import Any


def obey(client: Any) -> None:
    for line in sys.stdin:
        order = json.loads(line)
        try:
            answer = {"result": getattr(client, order.pop("do"))(**order)}
        except Exception as problem:
            answer = {"error": f"{type(problem).__name__}: {problem}"}
        print(json.dumps(answer), flush=True)
