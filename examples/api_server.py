"""An API server: POST /jobs, with X-Tenant and a JSON body, writes a job; GET /jobs/ID finds it, /healthz counts jobs.

    python examples/api_server.py 8080 redis://localhost:6379
    curl -i localhost:8080/jobs -H 'X-Tenant: acme' -d '{"prompt": "a cat"}'
With a header Idempotency-Key a client may post again if no answer came: the job is stored once, with the same id.
"""

import json
import math
import os
import signal
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from shardq import BackendError, Client, NotAvailable, QueueFull, QueueMissing

port = int(sys.argv[1]) if len(sys.argv) > 1 else 8080
url = sys.argv[2] if len(sys.argv) > 2 else os.environ.get("SHARDQ_URL", "redis://localhost:6379")
client = Client.from_url(url, timeout=2)
jobs = client.queue("jobs", visibility_timeout=10, max_deliveries=5, max_len=100_000)
# The first that fits. A BackendError says: not written, or perhaps (see Idempotency-Key); a ValueError: a bad request.
NOT_THERE, BAD = (QueueMissing, NotAvailable), (ValueError, RecursionError)
CODES = ((NOT_THERE, 404), (QueueFull, 429), (BackendError, 503), (BAD, 400))


class Api(BaseHTTPRequestHandler):
    """Turns requests into calls of the queue, and errors into an HTTP status."""

    timeout = 10  # seconds that a client may take to send its request

    def do_GET(self) -> None:
        """Handle the request, and send the answer."""
        after = 1.0
        try:
            status, body = self.perform()
        except (*NOT_THERE, QueueFull, BackendError, *BAD) as error:
            status, body = next(code for kinds, code in CODES if isinstance(error, kinds)), {"error": str(error)}
            after = getattr(error, "retry_after", None) or after  # a second, where it is up to the workers
        self.send_response(status)
        if status in (429, 503):
            self.send_header("Retry-After", str(math.ceil(after)))
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    do_POST = do_GET  # noqa: N815

    def perform(self) -> tuple[int, dict[str, object]]:
        """The status and the body of the answer."""
        if (self.command, self.path) == ("GET", "/healthz"):
            return 200, {"length": jobs.len()}
        if self.command == "GET" and self.path.startswith("/jobs/"):
            return 200, {"state": jobs.status(self.path.removeprefix("/jobs/")).state}
        tenant, key = self.headers.get("X-Tenant"), self.headers.get("Idempotency-Key")
        if (self.command, self.path) != ("POST", "/jobs") or not tenant:
            return 400, {"error": "POST to /jobs, with a header X-Tenant"}
        payload = json.loads(self.rfile.read(max(0, min(int(self.headers.get("Content-Length", 0)), 1_000_000))))
        return 202, {"id": jobs.write(payload, shard_key=tenant, dedup_key=key or None)}  # a tenant's keys are its own


with client, ThreadingHTTPServer(("127.0.0.1", port), Api) as server:
    server.daemon_threads = False  # so that leaving waits for requests that are being answered
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
    print(f"listening on http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()
