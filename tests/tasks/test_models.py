"""Models of pydantic are arguments and results, where a program has them; shardq itself imports none of it."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Annotated, Any, Generic, Literal, TypeVar
from uuid import UUID, uuid4

import pytest
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    HttpUrl,
    RootModel,
    SecretStr,
    computed_field,
    field_validator,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic.dataclasses import dataclass as checked_dataclass

from shardq import Client, CodecError, ConfigError
from shardq.codec import Codecs, JsonCodec
from shardq.tasks import Tasks
from shardq.worker.outcome import Reject
from tests.tasks.conftest import Work
from tests.tasks.test_types import as_argument, as_result, echo_of, taken
from tests.worker.running import FunctionKind, of_kind

T = TypeVar("T")


class Item(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel)

    unit_price: float = Field(gt=0)
    ordered_on: date = date(2026, 1, 2)

    @field_validator("unit_price")
    @classmethod
    def check(cls, value: float) -> float:
        if value > 1000:
            raise ValueError(f"{value} is too dear")
        return value


class Order(BaseModel):
    items: list[Item]
    id: UUID = Field(default_factory=uuid4)
    by_tag: dict[str, Item] = {}

    @model_validator(mode="after")
    def has_items(self) -> Order:
        assert self.items
        return self

    @computed_field  # type: ignore[prop-decorator]
    @property
    def total(self) -> float:
        return sum(each.unit_price for each in self.items)


class Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    at: datetime
    price: Decimal
    numbers: tuple[int, ...]
    by_number: dict[int, str]


class Renamed(BaseModel):
    one: int = Field(validation_alias="reads")
    two: int = Field(validation_alias="reads-two", serialization_alias="writes-two")


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    name: str


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"
    name: str


class Puppy(Dog):
    weeks: int


class Page(BaseModel, Generic[T]):
    rows: list[T]


class Numbers(RootModel[list[int]]):
    pass


@checked_dataclass
class Checked:
    number: Annotated[int, Field(ge=1)]


@dataclass
class Plain:
    order: Item
    checked: Checked


class Hashed(BaseModel):
    password: str

    @field_validator("password")
    @classmethod
    def hashed(cls, value: str) -> str:
        return f"#{value}"


class Secret(BaseModel):
    word: SecretStr


DOG = Dog(name="a")
ITEM = Item.model_validate({"unitPrice": 5})


@pytest.mark.parametrize("codec", [None, JsonCodec()])
@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Item, ITEM),
        (list[Order], [Order(items=[ITEM], by_tag={"a": ITEM})]),
        (Item | None, None),
        (dict[str, Item], {"a": ITEM}),
        (Strict, Strict(at=datetime.now(UTC), price=Decimal("1.10"), numbers=(1, 2), by_number={1: "a"})),
        (Renamed, Renamed.model_validate({"reads": 1, "reads-two": 2})),
        (Cat | Dog, Dog(name="a")),
        (Page[Item], Page[Item](rows=[ITEM])),
        (Numbers, Numbers([1, 2])),
        (Plain, Plain(ITEM, Checked(3))),
        (list[Checked], [Checked(3)]),
        (HttpUrl, HttpUrl("https://example.org/a")),
    ],
)
def test_a_model_comes_back_as_it_was_sent(kind: Any, value: Any, codec: Any) -> None:
    task, codecs = echo_of(kind), Codecs(codec)
    for back in (as_argument(task, value, codecs), as_result(task, value, codecs)):
        assert type(back) is type(value)
        assert back == value


def test_it_comes_back_with_what_was_set_of_it() -> None:
    """As a PATCH has it, of which the rest stays as it is."""
    back = as_argument(echo_of(Item), ITEM, Codecs())
    assert back.model_fields_set == {"unit_price"}
    assert back.model_dump(exclude_unset=True) == {"unit_price": 5}


@pytest.mark.parametrize(
    ("kind", "value", "told"),
    [
        (
            Dog,
            Puppy(name="a", weeks=3),
            "argument value: tests.tasks.test_models.Puppy would come back as tests.tasks.test_models.Dog",
        ),
        (
            list[Dog | Cat],
            [Dog(name="a"), Puppy(name="a", weeks=3)],
            "argument value[1]: tests.tasks.test_models.Puppy would",
        ),
        (Item, {"unitPrice": 5}, "argument value: dict would come back as tests.tasks.test_models.Item"),
        (
            list[Item],
            [Item.model_construct(unit_price="secret")],
            "argument value[0].unitPrice: what is there does not come back",
        ),
        (
            Hashed,
            Hashed(password="a"),
            "argument value.password: str would come back as another value: annotate what is sent; a",
        ),
        (
            Secret,
            Secret(word=SecretStr("secret")),
            "argument value.word: pydantic.types.SecretStr would come back as another value",
        ),
        (Checked, object(), "argument value: pydantic cannot encode it (PydanticSerializationError)"),
    ],
)
def test_what_would_not_is_refused_where_it_is_written(kind: Any, value: Any, told: str) -> None:
    with pytest.raises(CodecError) as raised:
        echo_of(kind).call(value)
    assert str(raised.value).startswith(told)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("kind", "sent", "why"),
    [
        (Order, {"items": [{"unitPrice": 1}, {"unitPrice": "secret"}]}, "value.items[1].unitPrice: float_parsing"),
        (Order, {"items": [{"unitPrice": 1}, {"secret": 1}]}, "value.items[1].unitPrice: missing"),
        (Order, {"items": [{"unitPrice": 5000}]}, "value.items[0].unitPrice: value_error"),
        (
            Order,
            {"items": [ITEM.model_dump()], "by_tag": {"secret": {"unitPrice": 0}}},
            "value.by_tag[...].unitPrice: greater_than",
        ),
        (list[Checked], [{"number": 0}], "value[0].number: greater_than_equal"),
        (Strict, {"secret": 1}, "value.at: missing"),
    ],
)
def test_what_another_program_writes_is_validated(kind: Any, sent: Any, why: str) -> None:
    with pytest.raises(Reject) as raised:
        taken(echo_of(kind), ["echo", {"value": sent}], Codecs())
    assert raised.value.reason == f"task 'echo' does not take its arguments: {why}"


def test_another_program_may_write_aliases_or_names() -> None:
    for sent in ({"unitPrice": 5}, {"unit_price": "5"}):
        assert taken(echo_of(Item), ["echo", {"value": sent}], Codecs()) == {"value": ITEM}


class Own:
    """No type that pydantic knows."""


class Half(BaseModel):
    part: Missing  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize(
    ("kind", "told"), [(Half, "names 'Missing', which is not there"), (Item | Own, "Own"), (list[Own | Item], "Own")]
)
def test_what_cannot_be_sent_is_refused_at_import(kind: Any, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        echo_of(kind)


def test_workers_run_tasks_that_take_and_return_them(client: Client, work: Work, functions: FunctionKind) -> None:
    tasks: Tasks[None] = Tasks("jobs", result_ttl=60)

    def order(items: list[Item], pet: Cat | Dog = DOG) -> Page[Item]:
        return Page[Item](rows=[*items, ITEM])

    task: Any = tasks.task(name="order")(of_kind(functions, order))
    batched: list[Item] = []

    @tasks.batch(size=2, wait=0.01)
    def index(items: list[Item]) -> None:
        batched.extend(items)

    queue = client.queue(tasks)
    job = queue.write(task.call([ITEM], pet=Cat(name="b")), shard_key="t")
    queue.write(index.call(ITEM), shard_key="t")
    work(tasks)
    assert job.result(timeout=5) == Page[Item](rows=[ITEM, ITEM])
    assert batched == [ITEM]


def test_nothing_of_pydantic_is_imported() -> None:
    asked = (
        "import sys, shardq, shardq.tasks; from shardq import AsyncClient, AsyncWorker, Client, Worker; "
        "shardq.tasks.Tasks('a').task(name='f')(lambda a: a); print('pydantic' in sys.modules)"
    )
    ended = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert ended.stdout == "False\n"
