"""Commands that take long, or many requests."""

from __future__ import annotations

from pulsarish.admin import Admin
from pulsarish.cli.admin.partitions import gone_partitions
from pulsarish.cli.progress import Progress
from pulsarish.model.topic_name import TopicName
from tests.support.admin_server import NEW, SPACE, AdminServer, run


def test_what_a_broker_is_too_slow_for_is_asked_again(server: AdminServer) -> None:
    server.answer(f"GET {NEW}/partitions", 200, {"partitions": 5000})
    answers = iter([504, 504, 204])
    path = f"DELETE {NEW}/partitions"
    server.answer_each(path, lambda: (next(answers), {"reason": "still at it"}))
    assert run(server, "topics", "delete", "acme/orders/new").exit_code == 0
    assert [method for method, *_ in server.requests].count("DELETE") == 3


def test_what_was_done_by_an_attempt_that_seemed_to_fail(server: AdminServer) -> None:
    answers = iter([504, 404])
    server.answer_each(f"DELETE {SPACE}", lambda: (next(answers), {"reason": "gone"}))
    assert run(server, "namespaces", "delete", "acme/orders", "--force").exit_code == 0
    server.answer(f"DELETE {SPACE}", 404, {"reason": "gone"})
    assert run(server, "namespaces", "delete", "acme/orders", "--force").exit_code == 1


def test_very_many_partitions_are_made_in_steps(server: AdminServer) -> None:
    assert run(server, "topics", "create", "acme/orders/new", "--partitions", "1200").exit_code == 0
    path = f"{NEW}/partitions"
    assert server.requests == [("PUT", path, 500), ("POST", path, 1000), ("POST", path, 1200)]
    server.requests.clear()
    server.answer(f"GET {path}", 200, {"partitions": 1200})
    assert run(server, "topics", "partitions", "grow", "acme/orders/new", "1300").exit_code == 0
    assert server.requests[1:] == [("POST", path, 1300)]
    assert (
        "has 1200 partitions already"
        in run(server, "topics", "partitions", "grow", "acme/orders/new", "1200").stderr
    )


def test_progress_says_how_far_it_has_come() -> None:
    progress = Progress("making", total=5000)
    progress.done(1500)
    assert progress.line(3.6) == "making  1,500 of 5,000 (30 %)  4 s"
    assert Progress("deleting t").line(12.0) == "deleting t  12 s"


def test_a_log_gets_a_line_for_every_tenth_and_every_half_minute() -> None:
    progress = Progress("copying", total=200, in_logs=True)
    progress.done(19)
    assert progress.line_due(2.0) == ""
    progress.done(20)
    assert progress.line_due(4.0) == "copying  20 of 200 (10 %)  4 s"
    progress.done(39)
    assert progress.line_due(33.9) == ""
    assert progress.line_due(34.0) == "copying  39 of 200 (19 %)  34 s"
    progress.done(100, total=100)
    assert progress.line_due(36.0) == "copying  100 of 100 (100 %)  36 s"
    assert progress.line_due(38.0) == ""


def test_progress_of_work_that_cannot_say_how_far_it_has_come(server: AdminServer) -> None:
    path = f"{NEW}/partitions"
    server.answer(f"GET {path}", 200, {"partitions": 600})
    left = [f"persistent://acme/orders/new-partition-{number}" for number in range(300)]
    server.answer(
        "GET /admin/v2/persistent/acme/orders", 200, [*left, "persistent://acme/orders/newer"]
    )
    gone = gone_partitions(Admin(server.url), TopicName.parse("acme/orders/new"), 600)
    assert gone() == 300
    server.answer("GET /admin/v2/persistent/acme/orders", 503, {"reason": "not now"})
    assert gone() == 300
    assert run(server, "topics", "delete", "acme/orders/new").exit_code == 0
    assert server.requests[-1] == ("DELETE", path, None)


def test_a_tenant_is_deleted_with_what_is_in_it_only_by_force(server: AdminServer) -> None:
    server.answer("GET /admin/v2/namespaces/acme", 200, ["acme/a", "acme/b"])
    assert run(server, "tenants", "delete", "acme", "--force").exit_code == 0
    assert [path for method, path, _ in server.requests if method == "DELETE"] == [
        "/admin/v2/namespaces/acme/a?force=true",
        "/admin/v2/namespaces/acme/b?force=true",
        "/admin/v2/tenants/acme",
    ]
