"""The process that enqueues: it reads orders `NUMBER PAYLOAD` from stdin, and prints the time of each as JSON.

All jobs of an order have the same payload, but for EACH, which is numbered. Runs in the environment of each contender.
"""

from __future__ import annotations

import json
import sys
import time
from importlib import import_module

from benchmarks.workers.counting import EACH


def main(module: str) -> None:
    enqueue = import_module(f"benchmarks.workers.{module}").enqueue
    for line in sys.stdin:
        number, payload = line.split()
        payloads = [f"{EACH}{at}" if payload == EACH else payload for at in range(int(number))]
        cpu, started = time.process_time(), time.perf_counter()
        enqueue(payloads)
        told = {"wall": time.perf_counter() - started, "cpu": time.process_time() - cpu}
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
