"""The edge of the server: bytes of requests to events of the core, its answers to bytes. No sockets here, no loop."""
