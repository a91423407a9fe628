"""`shardq serve scaler` as a process of its own, and a client as KEDA's, made from the text of its definition."""

from __future__ import annotations

import json
import os
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from typing import Any

import grpc
import redis
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from grpc_tools import protoc

from shardq.protocol.scripts import load
from tests.servers import Server

PROTO = Path(__file__).with_name("externalscaler.proto")
SERVICE = "externalscaler.ExternalScaler"
WITHIN = 60.0
"""Seconds within which a call of a test must end."""


@cache
def definition() -> tuple[dict[str, Any], Any]:
    """The classes of the messages, and the service, as protoc understands the text."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "set"
        assert protoc.main(["protoc", f"-I{PROTO.parent}", f"--descriptor_set_out={out}", PROTO.name]) == 0
        files = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for each in files.file:
        pool.Add(each)
    classes = message_factory.GetMessageClassesForFiles([PROTO.name], pool)
    return {name.rpartition(".")[2]: made for name, made in classes.items()}, pool.FindServiceByName(SERVICE)


class Keda:
    """Calls a scaler as KEDA does. Metadata are those of a trigger."""

    def __init__(self, address: str, credentials: grpc.ChannelCredentials | None = None) -> None:
        self.messages, self._service = definition()
        self.channel = (
            grpc.insecure_channel(address) if credentials is None else grpc.secure_channel(address, credentials)
        )

    def __enter__(self) -> Keda:
        return self

    def __exit__(self, *_: object) -> None:
        self.channel.close()

    def ref(self, metadata: dict[str, str]) -> Any:
        return self.messages["ScaledObjectRef"](name="workers", namespace="team", scalerMetadata=metadata)

    def call(self, name: str, request: Any, timeout: float = WITHIN) -> Any:
        """The answer of a call; of one that stays open, an iterator of answers."""
        method = self._service.methods_by_name[name]
        kind = self.channel.unary_stream if method.server_streaming else self.channel.unary_unary
        answer = self.messages[method.output_type.name]
        made = kind(f"/{SERVICE}/{name}", lambda message: message.SerializeToString(), answer.FromString)
        return made(request, timeout=timeout, wait_for_ready=True)

    def is_active(self, **metadata: str) -> bool:
        return bool(self.call("IsActive", self.ref(metadata)).result)

    def spec(self, **metadata: str) -> Any:
        (spec,) = self.call("GetMetricSpec", self.ref(metadata)).metricSpecs
        return spec

    def value(self, name: str = "", **metadata: str) -> Any:
        asked = self.messages["GetMetricsRequest"](scaledObjectRef=self.ref(metadata), metricName=name)
        (value,) = self.call("GetMetrics", asked).metricValues
        return value


def refused(work: Any) -> tuple[str, str]:
    """The status and the line with which a call is refused."""
    try:
        found = work()
    except grpc.RpcError as error:
        return error.code().name, error.details()
    raise AssertionError(f"not refused: {found!r}")


class ScalerProcess:
    """A `shardq serve scaler` that listens on ports of its own."""

    def __init__(self, url: str, *words: str, environment: dict[str, str] | None = None) -> None:
        listens = ("--listen", "127.0.0.1:0", "--grpc", "127.0.0.1:0")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "shardq.cli", "serve", "scaler", *listens, "--json", *words],
            env=os.environ | {"SHARDQ_URL": url} | (environment or {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self.process.stdout
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(self.process.communicate(timeout=WITHIN)[1].decode())
        told = json.loads(line)
        self.http, self.grpc = told["address"], told["grpc"]

    def get(self, path: str, tls: ssl.SSLContext | None = None) -> tuple[int, str]:
        """The status and the text with which a path is answered over HTTP."""
        where = self.http.rpartition(":")
        place = where[0] or "127.0.0.1", int(where[2])
        connection = (
            HTTPSConnection(*place, timeout=WITHIN, context=tls) if tls else HTTPConnection(*place, timeout=WITHIN)
        )
        try:
            connection.request("GET", path)
            reply = connection.getresponse()
            return reply.status, reply.read().decode()
        finally:
            connection.close()

    def numbers(self, path: str) -> dict[str, Any]:
        """What is told of a queue."""
        status, text = self.get(f"/queues/{path}")
        assert status == 200, text
        found: dict[str, Any] = json.loads(text)
        return found

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """How it ended, and what it wrote on stderr."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        _, err = self.process.communicate(timeout=WITHIN)
        return self.process.returncode, err.decode()


@contextmanager
def scaler(url: str, *words: str) -> Iterator[ScalerProcess]:
    """A scaler, which ends in order."""
    started = ScalerProcess(url, *words)
    try:
        yield started
    finally:
        code, err = started.stop()
    assert (code, "Traceback" in err) == (0, False), err


@contextmanager
def counted(server: Server) -> Iterator[list[tuple[float, str]]]:
    """When each call of `stats` came to the server in this context, and of which queue, by the server's own clock."""
    found: list[tuple[float, str]] = []
    name = load("stats").function
    with server.client(socket_timeout=None) as client, client.monitor() as monitor:
        over = threading.Event()

        def follow() -> None:
            for each in monitor.listen():
                words = each["command"].split()
                if words[0].upper().startswith("FCALL") and words[1] == name:
                    found.append((each["time"], words[3]))
                if words[:2] == ["PING", "over"]:
                    over.set()
                    return

        thread = threading.Thread(target=follow)
        thread.start()
        try:
            yield found
        finally:
            with redis.Redis.from_url(server.url) as last:
                last.execute_command("PING", "over")
            thread.join()
