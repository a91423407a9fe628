"""The commands that declare queues: apply, export, queues, delete."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardq import Client, Limits, Plan, QueueConfig
from shardq.cli.declared import changes, exported
from shardq.cli.text import ends_at
from shardq.declared import parsed
from shardq.ops.operate import limits, weights
from tests.cli.conftest import Command
from tests.servers import Server
from tests.surface import differences
from tests.unit.model.test_model import OTHER

FILE = """
[queues.predictions]
streams = 8
streams_per_shard = 2
visibility_timeout = 45
max_in_flight = 2

[queues.predictions.weights]
"acct-7" = 3
"acct-8" = 2

[queues.predictions.assignment]
keys = ["acct-7", "acct-8"]
max_overlap = 1

[queues."orders/eu"]
streams = 4
ttl = 3600

[[bindings]]
pattern = "orders.*.created"
queue = "orders/eu"

[[bindings]]
pattern = "audit.#"
queue = "predictions"
router = "audit"
"""


@pytest.fixture
def client(cli: Command) -> Iterator[Client]:
    with Client.from_url(cli.url) as client:
        yield client


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "queues.toml"
    path.write_text(FILE)
    return path


@pytest.mark.runs_in("test-all")
def test_a_file_is_applied_once(cli: Command, client: Client, file: Path) -> None:
    dry = cli("apply", str(file), "--dry-run")
    assert (dry.code, client.queues()) == (4, [])
    assert "queue 'orders/eu': create it with streams=4, ttl=3600" in dry.out
    assert "nothing was changed" in dry.err
    first = cli("apply", str(file), "--yes")
    assert (first.code, first.out) == (0, dry.out)
    assert "7 changes made" in first.err
    assert client.queues() == ["orders/eu", "predictions"]
    jobs = client.queue("predictions")
    now = jobs.settings()
    assert (now.streams, now.visibility_timeout, now.max_in_flight, now.window) == (8, 45, 2, 1)
    assert jobs.weights() == {"acct-7": 3, "acct-8": 2}
    assert len(jobs.assignment()) == 2
    assert client.queue("orders/eu").settings().ttl == 3600
    assert client.router().match("orders.de.created") == {"orders/eu"}
    assert client.router("audit").match("audit.x") == {"predictions"}
    again = cli("apply", str(file), "--yes")
    assert (again.code, again.out) == (0, "")
    assert "there was nothing to change" in again.err
    assert cli("apply", str(file), "--dry-run").code == 0


@pytest.mark.runs_in("test-all")
def test_what_differs_is_changed_and_what_is_not_named_stays(cli: Command, client: Client, file: Path) -> None:
    cli("apply", str(file), "--yes")
    jobs, other = client.queue("predictions"), client.queue("other", streams=2)
    other.declare()
    jobs.configure(max_deliveries=3)
    client.bind("more", "predictions", router="audit")
    client.bind("more", "other", router="audit")
    client.bind("more", "predictions")
    file.write_text(
        FILE.replace("streams = 8", "streams = 10")
        .replace("max_in_flight = 2", "max_in_flight = 5")
        .replace('"acct-8" = 2', "")
    )
    told = cli("apply", str(file), "--yes", "--json")
    assert [each["change"] for each in told.objects] == [
        "max_in_flight: 2 -> 5",
        "streams: 8 -> 10",
        "weight of 'acct-8': 2 -> 1",
        "unbind 'more' from 'predictions'",
        "unbind 'more' from 'predictions'",
    ]
    assert (jobs.settings().max_deliveries, jobs.settings().streams, jobs.weights()) == (3, 10, {"acct-7": 3})
    assert sorted(client.router("audit").bindings()) == [("audit.#", "predictions"), ("more", "other")]


@pytest.mark.runs_in("test-all")
def test_what_is_exported_is_what_was_applied(cli: Command, client: Client, file: Path) -> None:
    cli("apply", str(file), "--yes")
    raw = client.queue("raw", streams=3, max_len=10)
    raw.declare()
    raw.set_weights({b"\xff": 2, 'quo"te\n\x7f': 4})
    told = cli("export", "--router", "default", "--router", "audit")
    assert told.code == 0
    assert "left out, since TOML has no bytes: the weight of b'\\xff' in queue 'raw'" in told.err
    found = tomllib.loads(told.out)
    assert found["queues"]["raw"] == {"streams": 3, "max_len": 10, "weights": {'quo"te\n\x7f': 4}}
    assert found["bindings"] == tomllib.loads(FILE)["bindings"]
    raw.set_weights({b"\xff": 1})
    file.write_text(told.out)
    assert cli("apply", str(file), "--dry-run").code == 0
    for name in client.queues():
        client.queue(name).delete()
    assert cli("apply", str(file), "--yes").code == 0
    assert cli("export", "--router", "default", "--router", "audit").out == told.out
    assert "predictions" not in cli("export", "raw").out


def test_each_setting_is_exported_and_applied_as_it_is(client: Client) -> None:
    client.queue("all", **OTHER | {"partitions": 1}).declare()
    text, left_out = exported(client, ["all"], [])
    found = tomllib.loads(text)["queues"]["all"]
    apart = {"partitions": "a file makes none yet"}
    assert (differences(found, QueueConfig.__struct_fields__, apart), left_out) == ([], [])
    assert changes(client, parsed(text.encode())) == []
    client.queue("all").delete()
    (made,) = changes(client, parsed(text.encode()))
    made.make()
    assert client.queue("all").settings() == QueueConfig(**OTHER | {"partitions": 1})


def test_what_ends_by_itself_is_not_exported(client: Client) -> None:
    """The file says what is to be for good; a comment says what was left out."""
    queue = client.queue("jobs", streams=4)
    queue.declare()
    queue.set_limits({"acct-7": Limits(rate=5), b"\xff": Limits(rate=5)}, seconds=3600)
    queue.set_limits({"acct-8": Limits(rate=6)})
    queue.set_weights({"acct-7\n[queues.other]": 3}, seconds=3600, by="jonas")
    text, left_out = exported(client, ["jobs"], [])
    assert tomllib.loads(text) == {"queues": {"jobs": {"streams": 4, "limits": {"acct-8": {"rate": 6.0}}}}}
    assert left_out == []
    assert text.count("# left out, since it ends at 20") == 3
    assert changes(client, parsed(text.encode())) == []


def test_apply_leaves_what_ends_by_itself_but_where_the_file_names_it(client: Client) -> None:
    queue = client.queue("jobs", streams=4)
    queue.declare()
    queue.set_limits({"acct-7": Limits(rate=5), "acct-8": Limits(rate=5)}, seconds=3600, by="jonas")
    queue.set_weights({"acct-7": 3, "acct-8": 3}, seconds=3600)
    queue.set_limits({"acct-9": Limits(rate=5)})
    queue.set_weights({"acct-9": 3})
    file = "[queues.jobs.limits.acct-7]\nrate = 5\n[queues.jobs.weights]\nacct-7 = 2\n"
    found = changes(client, parsed(file.encode()))
    lines = [line for change in found for line in change.lines]
    ends = ends_at(queue.controls().limits["acct-7"].until)
    assert sorted(lines) == [
        f"limits of 'acct-7': rate=5 (until {ends}, by jonas) -> rate=5",
        "limits of 'acct-9': rate=5 -> none",
        f"weight of 'acct-7': 3 (until {ends_at(queue.controls().weights['acct-7'].until)}, by {client.name}) -> 2",
        "weight of 'acct-9': 3 -> 1",
    ]
    for change in found:
        change.make()
    told = queue.controls()
    assert {key: math.isinf(each.until) for key, each in told.limits.items()} == {"acct-7": True, "acct-8": False}
    assert {key: math.isinf(each.until) for key, each in told.weights.items()} == {"acct-7": True, "acct-8": False}
    assert changes(client, parsed(file.encode())) == []


@pytest.mark.runs_in("test-all")
def test_one_change_needs_a_yes_or_an_answer(cli: Command, client: Client, file: Path) -> None:
    told = cli("apply", str(file))
    assert (told.code, client.queues()) == (2, [])
    declined = cli.terminal("apply", str(file), typed="n\n")
    assert (declined.code, client.queues()) == (1, [])
    assert "create it with streams=4" in declined.out
    assert cli.terminal("apply", str(file), typed="y\n").code == 0
    assert len(client.queues()) == 2


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("queues = 3", "queues must be a table"),
        ("[queues.jobs", "this is not TOML"),
        ("[queue.jobs]", "the file has 'queue', which is none of bindings, queues"),
        ("[queues.jobs]\nstreems = 3", "queue 'jobs': unknown queue setting 'streems'"),
        ("[queues.jobs]\nstreams = 0", "queue 'jobs': streams must be"),
        ("[queues.'a b']\nstreams = 1", "a queue name may not hold ' '"),
        ("[queues.jobs.weights]\na = 101", "queue 'jobs': the weight of 'a' must be"),
        ("[queues.jobs.assignment]\nkeys = 'a'", "queue 'jobs': assignment: keys must be a list"),
        ("[queues.jobs.assignment]\nnames = ['a']", "assignment has 'names', which is none of keys, max_overlap"),
        ("[[bindings]]\npattern = 'a'", "binding 1:"),
        ("[[bindings]]\npattern = 'a..b'\nqueue = 'jobs'", "binding 1:"),
        ("[queues.jobs.weights]\n'' = 2", "queue 'jobs': weights: a shard key must not be empty"),
        ("[queues.jobs.limits.'']\nrate = 2", "queue 'jobs': limits: a shard key must not be empty"),
        ("[queues.jobs.limits.a]\nrate = -2", "queue 'jobs': rate must be a number per second"),
        ("[queues.jobs.plans.gold]\ncolour = 2", "plan 'gold' has 'colour', which is none of"),
        ("[queues.jobs.plans.'a b']\nrate = 2", "the name of a plan is"),
        ("[queues.jobs.plans.gold]\nweight = 0", "queue 'jobs': weight must be"),
        ("[queues.jobs.assignment]\nkeys = ['']", "queue 'jobs': assignment: a shard key must not be empty"),
        ("[queues.jobs.assignment]\nkeys = ['a']\nmax_overlap = '1'", "assignment: max_overlap must be a whole number"),
        ("[queues.jobs.weights]\n" + "".join(f"k{n} = 2\n" for n in range(1001)), "weights: at most 1,000 shard keys"),
        ("[[bindings]]\npattern = 'a'\nqueue = 'jobs'\nrouter = 3", "binding 1: router must be a text, not 3"),
        ("[[bindings]]\nqueue = 'jobs'", "binding 1: it has no pattern"),
        ("bindings = 1", "bindings must be tables"),
    ],
)
def test_a_file_with_a_mistake_changes_nothing(cli: Command, client: Client, text: str, told: str) -> None:
    good = "[queues.good]\nstreams = 1\n"
    found = cli("apply", "-", "--yes", stdin=(text if "queue" in text[:7] else f"{text}\n{good}").encode())
    assert found.code == 2
    assert told in found.err
    assert len(found.err.splitlines()) == 1
    assert client.queues() == []


@pytest.mark.parametrize("raw", [b"[queues.jobs]\n# \xff", b"\xff\xfe["])
def test_a_file_that_is_not_utf_8_is_refused(cli: Command, raw: bytes) -> None:
    told = cli("apply", "-", "--yes", stdin=raw)
    assert (told.code, len(told.err.splitlines())) == (2, 1)
    assert "this is not TOML, which is UTF-8" in told.err


def test_a_byte_order_mark_is_no_mistake(cli: Command) -> None:
    assert cli("apply", "-", "--dry-run", stdin=b"\xef\xbb\xbf[queues.jobs]\nstreams = 4\n").code == 4


@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("streams = 4\nstreams_per_shard = 2\nassignment = {keys = ['a', 'b', 'c'], max_overlap = 0}", "no room for"),
        ("streams = 4\nassignment = {keys = ['a'], max_overlap = 4}", "assignment: max_overlap must be"),
        ("parents = 1\n[queues.jobs.limits.'acct-7/user']\nrate = 1", "limits of 'acct-7/user': it has parents"),
        ("window = 0\n[queues.jobs.limits.a]\nrate = 1", "limits: it has no window"),
        ("window = 0\n[queues.jobs.plans.gold]\nrate = 1", "limits: it has no window"),
        ("[queues.jobs.limits]\na = 'gold'", "limits of 'a': there is no plan 'gold'"),
    ],
)
def test_what_a_queue_cannot_become_is_told_before_anything_is_changed(
    cli: Command, client: Client, text: str, told: str
) -> None:
    file = f"[queues.good]\nstreams = 1\n[queues.jobs]\n{text}\n"
    for how in ("--dry-run", "--yes"):
        found = cli("apply", "-", how, stdin=file.encode())
        assert (found.code, found.out, len(found.err.splitlines())) == (1, "", 1)
        assert f"queue 'jobs': {told}" in found.err or told in found.err
    assert client.queues() == []


@pytest.mark.runs_in("test-all")
def test_a_setting_that_redis_rounds_is_applied_once(cli: Command, client: Client) -> None:
    """Redis keeps times in whole ms."""
    file = b"[queues.jobs]\nvisibility_timeout = 1.23456\ndead_ttl = 60.0001\n"
    assert cli("apply", "-", "--yes", stdin=file).code == 0
    assert cli("apply", "-", "--yes", stdin=file).err == "shardq: there was nothing to change\n"
    assert cli("apply", "-", "--dry-run", stdin=file.replace(b"1.23456", b"1.24")).code == 4


PLANS = """
[queues.jobs]
streams = 2

[queues.jobs.plans.gold]
max_in_flight = 20
rate = 50
weight = 3

[queues.jobs.plans.trial]
burst = 2

[queues.jobs.limits]
a = "gold"
b = "gold"

[queues.jobs.limits.c]
rate = 7
"""


@pytest.mark.runs_in("test-all")
def test_plans_are_declared_and_exported(cli: Command, client: Client) -> None:
    told = cli("apply", "-", "--yes", stdin=PLANS.encode())
    assert "plan 'gold': none -> max_in_flight=20 rate=50 weight=3" in told.out
    assert "limits of 'a': none -> plan gold" in told.out
    jobs = client.queue("jobs")
    gold = Plan(max_in_flight=20, rate=50, weight=3, tenants=2)
    assert jobs.plans() == {"gold": gold, "trial": Plan(burst=2)}
    assert jobs.limits() == {"a": "gold", "b": "gold", "c": Limits(rate=7)}
    exported = cli("export", "jobs").out
    assert cli("apply", "-", "--yes", stdin=exported.encode()).err == "shardq: there was nothing to change\n"
    less = PLANS.replace("weight = 3\n", "").replace("[queues.jobs.plans.trial]\nburst = 2\n", "")
    told = cli("apply", "-", "--yes", stdin=less.replace('b = "gold"', "").encode())
    lines = [line.partition(": ")[2] for line in told.out.splitlines()]
    assert lines == [
        "plan 'gold': max_in_flight=20 rate=50 weight=3 -> max_in_flight=20 rate=50",
        "limits of 'b': plan gold -> none",
        "delete plan 'trial'",
    ]
    assert jobs.plans() == {"gold": Plan(max_in_flight=20, rate=50, tenants=1)}


@pytest.mark.runs_in("test-all")
def test_a_table_is_changed_by_few_calls(cli: Command, client: Client) -> None:
    """Each call moves the epoch, so clients would look the queue up again for every one of many shard keys."""
    jobs = client.queue("jobs", streams=2, journal=100_000)
    jobs.declare()
    tables = "".join(f"[queues.jobs.limits.k{n}]\nmax_in_flight = 2\n" for n in range(300))
    file = f"[queues.jobs.weights]\n{''.join(f'k{n} = 2{chr(10)}' for n in range(1000))}{tables}"
    told = cli("apply", "-", "--yes", stdin=file.encode())
    assert (told.code, len(told.out.splitlines())) == (0, 1300)
    assert "1,300 changes made" in told.err
    assert (len(jobs.weights()), len(jobs.limits())) == (1000, 300)
    moments = {each.time for each in jobs.journal(10_000).events}
    assert 1 < len(moments) <= 1000 / weights.WEIGHTS_A_CALL + 300 / limits.LIMITS_A_CALL
    told = cli("apply", "-", "--yes", stdin=file.replace("k", "other").encode())
    assert (told.code, len(jobs.weights()), len(jobs.limits())) == (0, 1000, 300)
    assert "other7" in jobs.weights()
    assert cli("export", "jobs").out == cli("export", "jobs").out


def test_two_servers_export_the_same_text(cli: Command, client: Client) -> None:
    """In the order of the shard keys, whatever the order in which they were given."""
    for name in ("one", "two"):
        jobs = client.queue(name, streams=2)
        jobs.declare()
        for key in ("b", "a", "c") if name == "one" else ("c", "b", "a"):
            jobs.set_weights({key: 2})
            jobs.set_limits({key: Limits(max_in_flight=2)})
    one, two = cli("export", "one").out, cli("export", "two").out
    assert one.replace("one", "two") == two


def test_a_change_that_is_refused_is_named(cli: Command, client: Client, file: Path) -> None:
    cli("apply", str(file), "--yes")
    file.write_text(FILE.replace("streams = 8", "streams = 3"))
    told = cli("apply", str(file), "--yes")
    assert told.code == 1
    assert "queue 'predictions': streams: 8 -> 3: queue 'predictions' cannot shrink" in told.err


def test_queues_are_listed_with_their_numbers(cli: Command, client: Client) -> None:
    told = cli("queues")
    assert (told.code, told.out, told.err) == (3, "", "shardq: there are no queues\n")
    client.queue("b", streams=2).write(1, shard_key="t")
    client.queue("a", streams=3).declare()
    lines = cli("queues").out.splitlines()
    assert lines[0] == "b has no worker: 1 message waits."
    assert [line.split()[:4] for line in lines[2:]] == [["b", "no", "worker", "1"], ["a", "idle", "0", "0"]]
    listed = cli("queues", "--json").objects
    assert [(each["queue"], each["exists"], each["backlog"], each["streams"], each["state"]) for each in listed] == [
        ("b", True, 1, 2, "no_worker"), ("a", True, 0, 3, "idle"),
    ]  # fmt: skip
    assert [each["needs_you"] for each in listed] == [True, False]


def test_a_queue_that_redis_lost_is_shown_as_missing(cli: Command, client: Client) -> None:
    client.queue("lost", streams=1).declare()
    client.queue("there", streams=1).declare()
    client.run(_forget("lost"))
    lines = cli("queues").out.splitlines()
    assert lines[0] == "lost is missing: Redis lost its keys, or somebody deleted them."
    assert [line.split()[:2] for line in lines[2:]] == [["lost", "missing:"], ["there", "idle"]]
    assert "lost" not in cli("export").out


def test_a_queue_that_cannot_be_read_hides_no_other(cli: Command, client: Client, cli_server: Server) -> None:
    client.queue("closed", streams=1).declare()
    client.queue("there", streams=1).declare()
    cli_server.run("UNLINK", "shardq:{closed}:delayed")
    cli_server.run("SET", "shardq:{closed}:delayed", "another program's")
    told = cli("queues")
    assert (told.code, len(told.err.splitlines())) == (1, 1)
    assert "queue 'closed': a key of this queue holds another type" in told.err
    assert [line.split()[:2] for line in told.out.splitlines()[2:]] == [["there", "idle"], ["closed", "unreadable:"]]
    assert [each["queue"] for each in cli("queues", "--json").objects] == ["there"]


def _forget(name: str):  # type: ignore[no-untyped-def] # an operation
    from shardq.ops.queue.steps import Ask

    yield Ask(("UNLINK", f"shardq:{{{name}}}:meta"), f"shardq:{{{name}}}:meta")


@pytest.mark.runs_in("test-all")
def test_a_queue_is_deleted_with_what_it_holds_only_if_that_is_said(cli: Command, client: Client) -> None:
    client.queue("jobs", streams=2).write_many([(number, "t") for number in range(3)])
    refused = cli("delete", "jobs", "--yes")
    assert (refused.code, client.queue("jobs").len()) == (1, 3)
    assert "holds 3 messages, dead letters included, and not 0: nothing was deleted; --any" in refused.err
    assert cli("delete", "jobs", "--dry-run").err == refused.err, "what it would do is what it does"
    assert cli("delete", "jobs", "--expected", "2", "--yes").code == 1
    asked = cli.terminal("delete", "jobs", "--expected", "3", typed="y\n")
    assert asked.code == 0
    assert "Delete queue 'jobs' with 3 messages for good?" in asked.out
    assert client.queues() == []
    assert cli("delete", "jobs", "--yes").code == 3
    client.queue("more", streams=2).write(1, shard_key="t")
    assert cli("delete", "more", "--any", "--yes", "--json").objects == [{"queue": "more", "deleted": 1}]


def test_a_write_creates_a_queue_only_if_that_is_said(cli: Command, client: Client) -> None:
    told = cli("write", "jobs", "x", "-t", "t")
    assert told.code == 3
    assert "there is no queue 'jobs'" in told.err
    assert cli("write", "jobs", "x", "-t", "t", "--create").code == 0
    assert client.queue("jobs").len() == 1
