"""Each action in a real browser, by mouse and by keyboard alone, and what it did in the real queue."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from starlette.applications import Starlette

from shardq import Client, Limits, Queue, Where
from shardq.client import AsyncClient
from shardq.dashboard import app
from shardq.dashboard.serving import PageServer, PageSettings
from tests.dashboard import counter as at
from tests.dashboard.browser import Look, Open
from tests.dashboard.counter import bury, events, fail, fill
from tests.dashboard.layout import check_all_sizes
from tests.servers import Server
from tests.waiting import eventually

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.once
LONG = pytest.mark.runs_in("test-all")
HANDS = pytest.mark.parametrize("hand", ["mouse", "keyboard"])

_BUTTON = """
async ([action, args, label, options]) => {
  const { button } = await import("./js/actions.js");
  const me = await (await fetch("me")).json();
  const made = button(action, args, label, { ...options, side: me });
  document.getElementById("bench")?.remove();
  const bench = Object.assign(document.createElement("div"), { id: "bench" });
  bench.style.gridColumn = "1 / -1";
  document.querySelector(".skip").before(bench);
  if (made) bench.append(made);
  return made !== null;
}
"""


@pytest.fixture
def mails(client: Client) -> Queue:
    return at.open_queue(client, "mails")


@pytest.fixture
def address(server: Server) -> Iterator[str]:
    def connect() -> AsyncClient:
        return AsyncClient.from_url(server.url)

    def page(client: AsyncClient) -> Starlette:
        return app(client, auth=at.who, actions=True)

    served = PageServer(PageSettings("127.0.0.1:0"), connect, page)
    served.open()
    yield served.address
    served.close()


class Hands:
    """A person before the page, who works with the mouse or with the keyboard alone."""

    def __init__(self, look: Look, hand: str) -> None:
        self.look, self.hand = look, hand
        self.page: Page = look.go()

    def button(self, action: str, label: str, **args: Any) -> bool:
        """Have a button for an action before all else on the page; return whether there is one for this person."""
        return bool(self.page.evaluate(_BUTTON, [action, args, label, {}]))

    def open(self, action: str, label: str, **args: Any) -> None:
        """Open the dialog of an action, and wait until it says what it does."""
        assert self.button(action, label, **args)
        self.press(f"#bench >> text={label}")
        self.page.wait_for_selector("#act[open] .says, #act[open] [role=alert]")

    def press(self, target: str) -> None:
        """Press a button."""
        if self.hand == "mouse":
            self.page.click(target)
        else:
            self.tab_to(target)
            self.page.keyboard.press("Enter")

    def tab_to(self, target: str) -> None:
        """Go on by the Tab key until *target* has the focus."""
        wanted = self.page.wait_for_selector(target)
        assert wanted is not None
        for _ in range(60):
            if wanted.evaluate("(node) => node === document.activeElement"):
                return
            self.page.keyboard.press("Tab")
        raise AssertionError(f"the Tab key does not lead to {target}")

    def write(self, name: str, text: str) -> None:
        """Type into a field."""
        field = f"#act [name={name}]"
        if self.hand == "mouse":
            self.page.fill(field, text)
            return
        self.tab_to(field)
        self.page.keyboard.press("Control+a")
        self.page.keyboard.press("Backspace")
        self.page.keyboard.type(text)

    def choose(self, name: str, words: str) -> None:
        """Choose in a list."""
        field = f"#act [name={name}]"
        if self.hand == "mouse":
            self.page.select_option(field, label=words)
            return
        self.tab_to(field)
        self.page.keyboard.type(words)

    def check(self, name: str) -> None:
        """Switch something on."""
        field = f"#act [name={name}]"
        if self.hand == "mouse":
            self.page.check(field)
        else:
            self.tab_to(field)
            self.page.keyboard.press("Space")

    def says(self, text: str) -> None:
        """Wait until the dialog says *text*."""
        self.page.wait_for_selector(f"#act[open] >> text={text}")

    def go(self, verb: str) -> str:
        """Do it, and return what is said of it."""
        target = f"#act button[type=submit]:text-is('{verb}'):enabled"
        self.page.wait_for_selector(target)
        self.press(target)
        status = self.page.wait_for_selector("#act[open] > [role=status]")
        assert status is not None
        return status.inner_text()

    def close(self) -> None:
        """Close the dialog, and see that the button from which it came has the focus again."""
        self.page.keyboard.press("Escape") if self.hand == "keyboard" else self.page.click("#act [data-close]")
        self.page.wait_for_selector("#act", state="hidden")
        assert self.page.evaluate("document.activeElement.closest('#bench') !== null")


@pytest.fixture
def hands(open_look: Open, address: str) -> Callable[..., Hands]:
    def made(hand: str = "mouse", person: str = "ada", **how: Any) -> Hands:
        return Hands(open_look(address, extra_http_headers={"x-person": person}, **how), hand)

    return made


Made = Callable[..., Hands]


def noted(queue: Queue, kind: str, by: str = "ada") -> None:
    """The journal has rows of that, and only of the person who acted."""
    assert {who for who, _ in events(queue, kind)} == {by}


def test_a_tenant_is_paused(mails: Queue, hands: Made) -> None:
    fill(mails, "acme", 12)
    me = hands("keyboard", "jonas")
    me.open("pause", "Pause for…", queue="mails", shard_key="acme")
    me.says("Its 12 messages wait until ")
    me.choose("seconds", "15 minutes")
    me.write("note", "ticket 812")
    assert me.go("Pause") == "acme in mails is paused for 15 minutes."
    me.close()
    control = mails.controls().paused["acme"]
    assert (control.by, control.note) == ("jonas", "ticket 812")
    assert 890 < control.until - mails.stats().time <= 900
    me.look.check()


@LONG
@HANDS
class TestEachAction:
    def test_pause(self, hand: str, mails: Queue, hands: Made) -> None:
        fill(mails, "acme", 12)
        me = hands(hand)
        me.open("pause", "Pause for…", queue="mails")
        me.says("It is the whole queue: 12 messages of all tenants wait")
        me.choose("seconds", "until somebody ends it")
        me.says("A pause without an end is easily forgotten.")
        assert me.go("Pause") == "mails is paused until somebody ends it."
        me.close()
        assert list(mails.paused()) == [None]
        noted(mails, "paused")
        me.look.check()

    def test_resume(self, hand: str, mails: Queue, hands: Made) -> None:
        mails.pause("acme", by="mia")
        me = hands(hand)
        me.open("resume", "End the pause", queue="mails", shard_key="acme")
        me.says("mia paused it at ")
        assert me.go("End the pause") == "acme in mails goes on."
        assert mails.paused() == {}
        noted(mails, "resumed")
        me.look.check()

    def test_limit(self, hand: str, mails: Queue, hands: Made) -> None:
        me = hands(hand)
        me.open("limit", "Limit until…", queue="mails", shard_key="acme")
        me.write("rate", "2.5")
        me.says("At most 2.5 a second, until ")
        me.write("max_in_flight", "3")
        me.says("At most 2.5 a second and 3 in flight, until ")
        assert me.go("Limit") == "acme in mails is limited for 1 hour."
        assert mails.limits() == {"acme": Limits(rate=2.5, max_in_flight=3)}
        noted(mails, "limited")
        me.look.check()

    def test_weight(self, hand: str, mails: Queue, hands: Made) -> None:
        me = hands(hand)
        me.open("weight", "Weight", queue="mails", shard_key="acme")
        me.write("weight", "7")
        me.says("7 times the share")
        assert me.go("Set the weight") == "acme in mails has weight 7 without an end."
        assert mails.weights() == {"acme": 7}
        noted(mails, "weighted")
        me.look.check()

    def test_plan(self, hand: str, mails: Queue, hands: Made) -> None:
        mails.set_plan("gold", rate=50, weight=3)
        me = hands(hand)
        me.open("plan", "Plan…", queue="mails", shard_key="acme")
        me.choose("plan", "gold: 50 a second, weight 3")
        me.says("On gold without an end")
        assert me.go("Set the plan") == "acme in mails is on plan gold without an end."
        assert mails.limits() == {"acme": "gold"}
        noted(mails, "limited")
        me.look.check()

    def test_purge(self, hand: str, mails: Queue, hands: Made) -> None:
        fill(mails, "acme", 8)
        fill(mails, "bolt", 2)
        mails.read_many(10)
        fill(mails, "acme", 5)
        me = hands(hand)
        me.open("purge", "Purge 5 messages…", queue="mails", shard_key="acme")
        me.says("5 messages are gone for good: 5 waiting, 0 delayed, 0 dead letters.")
        assert me.page.is_disabled("#act button[type=submit]")
        me.write("typed", "acm")
        assert me.page.is_disabled("#act button[type=submit]")
        me.check("in_flight")
        me.says("8 in flight are cancelled")
        me.write("typed", "acme")
        assert "5 waiting" in me.go("Purge")
        assert mails.tenant("acme").backlog == 0
        assert mails.tenant("bolt").in_flight == 2
        noted(mails, "purged")
        me.look.check()

    def test_redrive(self, hand: str, mails: Queue, hands: Made) -> None:
        bury(mails, "acme", 9)
        bury(mails, "acme", 2, ValueError("bad"))
        me = hands(hand)
        me.open("redrive", "Redrive 9 at 50/s", queue="mails", task="mail.send", error="TimeoutError")
        me.says("It takes 0.2 s at 50/s.")
        me.go("Redrive")
        me.says("9 redriven, done.")
        assert (mails.stats().dead, mails.stats().backlog) == (2, 9)
        noted(mails, "redriven")
        me.close()
        me.look.check()

    def test_redrive_that_is_stopped(self, hand: str, mails: Queue, hands: Made) -> None:
        bury(mails, "acme", 50)
        me = hands(hand)
        me.open("redrive", "Redrive 50", queue="mails")
        me.write("rate", "5")
        me.says("It takes 10 s at 5/s.")
        assert me.go("Redrive") == "Redrive: 50 dead letters of mails, under way."
        me.says("of 50 redriven, 5/s")
        me.press("#act button:text-is('Stop')")
        me.says("redriven, stopped.")
        assert 0 < mails.stats().dead < 50
        assert [each.state for each in mails.actions()] == ["stopped"]
        noted(mails, "stopped")
        me.look.check()

    def test_stop_of_what_another_began(self, hand: str, mails: Queue, hands: Made) -> None:
        bury(mails, "acme", 50)
        action = mails.redrive(Where(state="dead"), rate=1, by="mia")
        me = hands(hand)
        me.open("stop", "Stop", queue="mails", id=action.id)
        me.says("Stop the redrive of mia in mails")
        assert me.go("Stop it") == "The redrive stops with its next piece."
        assert action.wait().state == "stopped"
        noted(mails, "stopped")
        me.look.check()

    def test_go_on_with_what_was_stopped(self, hand: str, mails: Queue, hands: Made) -> None:
        bury(mails, "acme", 9)
        action = mails.redrive(Where(state="dead"), by="mia")
        mails.stop_action(action.id)
        assert action.wait().state == "stopped"
        me = hands(hand)
        me.open("go_on", "Go on", queue="mails", id=action.id)
        me.says("This page continues it, under the same name.")
        me.go("Go on")
        me.says("9 redriven, done.")
        assert (mails.stats().dead, mails.stats().backlog) == (0, 9)
        noted(mails, "redriven", "mia")
        me.look.check()

    def test_retry_now(self, hand: str, mails: Queue, hands: Made) -> None:
        fail(mails, "acme", 4)
        me = hands(hand)
        me.open("retry_now", "Try 4 now", queue="mails", error="TimeoutError")
        me.go("Try now")
        me.says("4 tried now, done.")
        assert mails.stats().delayed == 0
        noted(mails, "hastened")
        me.look.check()

    def test_retry_now_of_one(self, hand: str, mails: Queue, hands: Made) -> None:
        _, second, _ = fail(mails, "acme", 3)
        me = hands(hand, "jonas")
        me.open("retry_now", "Try now", queue="mails", message_id=second)
        me.says("It failed with TimeoutError.")
        assert me.go("Try now") == "It can be delivered now."
        assert [each.message_id for each in mails.read_many(5)] == [second]
        noted(mails, "hastened", "jonas")
        me.look.check()

    def test_redrive_of_one(self, hand: str, mails: Queue, hands: Made) -> None:
        _, second = bury(mails, "acme", 2)
        me = hands(hand, "jonas")
        me.open("redrive", "Redrive…", queue="mails", message_id=second)
        me.says("A dead letter of acme, 1 delivery so far.")
        assert me.go("Redrive") == "It waits for its turn again."
        assert [each.message_id for each in mails.read_many(5)] == [second]
        noted(mails, "redriven", "jonas")
        me.look.check()

    def test_delete_of_one(self, hand: str, mails: Queue, hands: Made) -> None:
        first, second = bury(mails, "acme", 2)
        me = hands(hand)
        me.open("delete", "Delete…", queue="mails", message_id=second)
        me.write("typed", "mails")
        assert me.go("Delete") == "It is deleted."
        assert [each.message_id for each in mails.dead()] == [first]
        noted(mails, "deleted")
        me.look.check()

    def test_cancel_of_one(self, hand: str, mails: Queue, hands: Made) -> None:
        first, second = fill(mails, "acme", 2)
        me = hands(hand, "jonas")
        me.open("cancel", "Cancel…", queue="mails", message_id=first)
        me.says("It waits for its turn, of acme.")
        assert me.go("Cancel the message") == "It is removed."
        assert [each.message_id for each in mails.read_many(5)] == [second]
        noted(mails, "cancelled", "jonas")
        me.look.check()

    def test_cancel_of_many(self, hand: str, mails: Queue, hands: Made) -> None:
        fill(mails, "acme", 6)
        me = hands(hand)
        me.open("cancel", "Cancel 6…", queue="mails", task="mail.send")
        me.write("typed", "mails")
        me.go("Cancel")
        me.says("6 cancelled, done.")
        assert mails.stats().backlog == 0
        noted(mails, "cancelled")
        me.look.check()

    def test_delete(self, hand: str, mails: Queue, hands: Made) -> None:
        bury(mails, "acme", 6)
        me = hands(hand)
        me.open("delete", "Delete 6…", queue="mails", error="TimeoutError")
        me.write("typed", "mails")
        me.go("Delete")
        me.says("6 deleted, done.")
        assert mails.stats().dead == 0
        noted(mails, "deleted")
        me.look.check()

    def test_run_now(self, hand: str, client: Client, hands: Made) -> None:
        reports = at.open_queue(client, "reports", max_schedules=10)
        reports.schedules.add("daily", at.call("app.report"), shard_key="acme", every=86_400)
        me = hands(hand)
        me.open("run_now", "Run now", queue="reports", schedule="daily")
        me.says("One message is written now: app.report, of acme.")
        assert me.go("Run now").startswith("Written: message ")
        assert reports.stats().backlog == 1
        noted(reports, "written")
        me.look.check()


@LONG
def test_who_may_not_act_sees_no_button(mails: Queue, hands: Made) -> None:
    may = {"vera": [], "jonas": ["pause", "cancel one"], "ada": ["pause", "purge", "cancel", "cancel one"]}
    for person, allowed in may.items():
        me = hands(person=person)
        found = []
        for name, action, args in (
            ("pause", "pause", {}), ("purge", "purge", {"shard_key": "a"}), ("cancel", "cancel", {"shard_key": "a"}),
            ("cancel one", "cancel", {"message_id": "1-1"}),
        ):  # fmt: skip
            if me.button(action, "Do it", queue="mails", **args):
                found.append(name)
        assert found == allowed


@LONG
def test_what_changed_meanwhile_is_said_before_it_is_done(mails: Queue, hands: Made) -> None:
    fill(mails, "acme", 10)
    me = hands()
    me.open("purge", "Purge…", queue="mails", shard_key="acme")
    me.write("typed", "acme")
    fill(mails, "acme", 40)
    me.press("#act button[type=submit]")
    me.says("Nothing was done yet: 50 are waiting by now, and not 10 messages.")
    me.says("50 messages are gone for good")
    check_all_sizes(me.look)
    assert mails.stats().backlog == 50
    assert "50 waiting" in me.go("Purge")
    assert mails.stats().backlog == 0
    me.look.check("409")


@LONG
def test_a_proxy_that_gives_up_says_nothing_of_what_was_done(mails: Queue, hands: Made) -> None:
    fill(mails, "acme", 3)
    me = hands()
    me.open("pause", "Pause…", queue="mails", shard_key="acme")
    me.page.route("**/act/pause", lambda route: route.fulfill(status=504, body="<h1>Gateway Time-out</h1>"))
    me.page.wait_for_selector("#act button[type=submit]:enabled")
    me.press("#act button[type=submit]")
    me.says("No answer came: it may have been done, or not.")
    me.look.check("504")


@LONG
def test_what_cannot_be_done_is_said_and_has_no_button(mails: Queue, hands: Made) -> None:
    me = hands("keyboard")
    me.open("resume", "End the pause", queue="mails", shard_key="acme")
    me.says("It is not paused.")
    assert me.page.query_selector("#act button[type=submit]") is None
    assert me.page.get_attribute("#act .says", "aria-busy") == "false"
    check_all_sizes(me.look)
    me.close()
    me.look.check()


@LONG
def test_a_value_that_is_none_is_said_and_kept_from_being_sent(mails: Queue, hands: Made) -> None:
    me = hands()
    me.open("limit", "Limit…", queue="mails", shard_key="acme")
    me.write("rate", "many")
    me.says("Deliveries a second is a number from 0.001 to 1,000,000, or empty.")
    assert me.page.is_disabled("#act button[type=submit]")
    check_all_sizes(me.look)
    me.write("rate", "4")
    me.says("At most 4 a second")
    assert me.go("Limit") == "acme in mails is limited for 1 hour."
    me.look.check("400")


@LONG
def test_while_redis_is_away_the_dialog_says_so_and_goes_on(server: Server, mails: Queue, hands: Made) -> None:
    fill(mails, "acme", 3)
    me = hands()
    me.open("pause", "Pause…", queue="mails", shard_key="acme")
    server.pause()
    try:
        me.page.click("#act button[type=submit]")
        me.says("Redis did not answer in time, and nothing was done.")
    finally:
        server.resume()
    me.choose("seconds", "5 minutes")
    assert me.go("Pause") == "acme in mails is paused for 5 minutes."
    me.look.check("503")


@LONG
def test_hostile_names_are_names(mails: Queue, hands: Made) -> None:
    names = ["<img src=x onerror=alert(1)>", "a'\"&%20{}", "\u202eevil\u202c", "x" * 400, "<script>alert(1)</script>"]
    for name in names:
        fill(mails, name, 1, task=name)
    me = hands(width=360)
    for name in names:
        me.open("purge", "Purge…", queue="mails", shard_key=name)
        me.says("1 message is gone for good")
        me.look.check_width()
        danger = me.page.inner_text("#act .field b")
        me.write("typed", danger)
        assert "1 waiting" in me.go("Purge")
        me.close()
        assert mails.tenant(name).backlog == 0
    me.look.check()


@LONG
def test_how_far_it_is_fits_and_axe_finds_nothing(mails: Queue, hands: Made) -> None:
    """What a dialog says first is in test_matrix.py."""
    bury(mails, "acme", 400)
    me = hands()
    me.open("redrive", "Do it", queue="mails", error="TimeoutError")
    me.write("rate", "4")
    me.says(" at 4/s.")
    me.go("Redrive")
    me.says("of 400 redriven")
    check_all_sizes(me.look)
    me.press("#act button:text-is('Stop')")
    me.says("redriven, stopped.")
    check_all_sizes(me.look)
    me.look.check()


@LONG
def test_it_goes_on_when_the_dialog_is_closed(mails: Queue, hands: Made) -> None:
    bury(mails, "acme", 30)
    me = hands()
    me.open("redrive", "Redrive", queue="mails")
    me.write("rate", "20")
    me.says("It takes 1.5 s at 20/s.")
    me.go("Redrive")
    me.close()
    me.page.close()
    eventually(lambda: mails.stats().dead == 0)
    assert [each.state for each in mails.actions()] == ["done"]
