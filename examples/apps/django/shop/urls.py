"""Two views: one enqueues a task, the other one tells what became of it."""

import asyncio

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.tasks.exceptions import TaskResultDoesNotExist
from django.urls import path

from shop.tasks import report


def ask(request: HttpRequest) -> HttpResponse:
    result = report.enqueue(account=request.GET["account"], days=int(request.GET["days"]))
    response = HttpResponseRedirect(f"/reports/{result.id}")
    response.status_code = 303
    return response


async def answer(request: HttpRequest, result_id: str) -> HttpResponse:
    try:
        result = await report.aget_result(result_id)
        for _ in range(100):  # for 10 s at most
            if result.is_finished:
                break
            await asyncio.sleep(0.1)
            await result.arefresh()
    except TaskResultDoesNotExist as error:
        raise Http404 from error
    errors = [each.exception_class_path for each in result.errors]
    value = result.return_value if result.is_finished and not errors else None
    return JsonResponse({"status": result.status, "value": value, "errors": errors})


urlpatterns = [path("reports", ask), path("reports/<result_id>", answer)]
