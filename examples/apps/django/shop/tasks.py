"""The tasks, as Django has them."""

from django.tasks import task


@task
def report(account: str, days: int) -> dict[str, object]:
    return {"account": account, "hours": 24 * days}
