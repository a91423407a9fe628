"""The definition of the wire: what is published is what runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from shardq.datasink import messages

FOLDER = Path(messages.__file__).parent


def test_the_compiled_definition_is_that_of_the_published_one(tmp_path: Path) -> None:
    compiled = tmp_path / "compiled"
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I.", f"--descriptor_set_out={compiled}", messages.FILE]
    subprocess.run(command, cwd=FOLDER, check=True)
    assert compiled.read_bytes() == (FOLDER / "shardq_edge.binpb").read_bytes(), "run `make proto`"


def test_messages_cross_the_wire() -> None:
    request = messages.Request(
        version=messages.VERSION, message_id=b"\x01\x02", queue="jobs", shard_key=b"t-1", plain_message=b"x"
    )
    request.headers["kind"] = "a"
    found = messages.Request.FromString(request.SerializeToString())
    assert found == request
    assert found.WhichOneof("payload") == "plain_message"
    response = messages.Response(version=1, ack=messages.AckMessage(message_ids=[b"a", b"b"]))
    assert messages.Response.FromString(response.SerializeToString()).ack.message_ids == [b"a", b"b"]


def test_the_path_of_the_method_is_that_of_the_definition() -> None:
    service = messages.descriptors().FindServiceByName(messages.SERVICE)
    (method,) = service.methods
    assert f"/{service.full_name}/{method.name}" == messages.SEND
    assert (method.client_streaming, method.server_streaming) == (True, True)
