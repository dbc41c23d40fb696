"""What errors of commands teach."""

from __future__ import annotations

import pytest

from tests.support.admin_server import NEW, SPACE, AdminServer, admin_server, run


def test_names_that_are_near(server: AdminServer) -> None:
    server.answer(
        "GET /admin/v2/persistent/acme/orders/nwe/partitions",
        404,
        {"reason": "no such topic"},
        {"X-Pulsarish-Error-Code": "21"},
    )
    server.answer(
        "GET /admin/v2/persistent/acme/orders",
        200,
        ["persistent://acme/orders/new", "persistent://acme/orders/other"],
    )
    done = run(server, "topics", "stats", "acme/orders/nwe")
    assert done.exit_code == 1
    assert "did you mean persistent://acme/orders/new?" in done.stderr
    assert "pulsarish topics create acme/orders/nwe" in done.stderr
    server.answer(
        f"PUT {NEW}-partition-7",
        404,
        {"reason": "no such partition"},
        {"X-Pulsarish-Error-Code": "21"},
    )
    assert (
        "topics create" not in run(server, "topics", "create", "acme/orders/new-partition-7").stderr
    )
    server.answer(
        "GET /admin/v2/tenants/acne",
        404,
        {"reason": "no such tenant"},
        {"X-Pulsarish-Error-Code": "20"},
    )
    server.answer("GET /admin/v2/tenants", 200, ["acme", "public"])
    assert "did you mean acme?" in run(server, "tenants", "get", "acne").stderr
    server.answer(
        f"DELETE {NEW}/subscription/bill", 404, {"reason": "none"}, {"X-Pulsarish-Error-Code": "22"}
    )
    server.answer(f"GET {NEW}/subscriptions", 200, ["billing"])
    assert (
        "did you mean billing?"
        in run(server, "subscriptions", "delete", "acme/orders/new", "bill").stderr
    )
    server.answer(
        "GET /admin/v2/namespaces/acme/order",
        404,
        {"reason": "none"},
        {"X-Pulsarish-Error-Code": "20"},
    )
    server.answer("GET /admin/v2/namespaces/acme", 200, ["acme/orders"])
    assert (
        "did you mean acme/orders?"
        in run(server, "namespaces", "get-policies", "acme/order").stderr
    )


@pytest.mark.parametrize(
    ("listed", "hint"),
    [
        (["orders"], "did you mean persistent://acme/shop/orders?"),
        (["orders-partition-0"], "did you mean persistent://acme/shop/orders?"),
        (["ordres"], None),
        (["ordres-partition-0", "ordres-partition-1"], None),
    ],
)
def test_a_redrive_without_dead_letters_does_not_offer_to_create_the_topic(
    server: AdminServer, listed: list[str], hint: str | None
) -> None:
    dead = "ordres-billing-DLQ"
    for path in (f"{dead}/subscriptions", f"{dead}/partitions"):
        server.answer(
            f"GET /admin/v2/persistent/acme/shop/{path}",
            404,
            {"reason": "no such topic"},
            {"X-Pulsarish-Error-Code": "21"},
        )
    names = [f"persistent://acme/shop/{name}" for name in listed]
    server.answer("GET /admin/v2/persistent/acme/shop", 200, names)
    done = run(server, "subscriptions", "redrive", "acme/shop/ordres", "billing")
    assert done.exit_code == 1
    error, *hints = done.stderr.splitlines()
    assert f"there is no dead letter topic persistent://acme/shop/{dead}" in error
    assert [each.strip() for each in hints] == ([] if hint is None else [hint])


@pytest.mark.parametrize(
    ("arguments", "request_line", "code"),
    [
        ("topics partitions grow acme/orders/new 8", f"GET {NEW}/partitions", 21),
        ("namespaces unload acme/orders --bundle 0x0_0x1", f"PUT {SPACE}/0x0_0x1/unload", 20),
        ("namespaces update acme/orders --remove-property p", f"DELETE {SPACE}/property/p", 20),
    ],
)
def test_what_is_there_is_not_offered_in_its_own_place(
    server: AdminServer, arguments: str, request_line: str, code: int
) -> None:
    server.answer("GET /admin/v2/persistent/acme/orders", 200, ["persistent://acme/orders/new"])
    server.answer("GET /admin/v2/namespaces/acme", 200, ["acme/orders"])
    server.answer(
        request_line, 404, {"reason": "no such part of it"}, {"X-Pulsarish-Error-Code": str(code)}
    )
    done = run(server, *arguments.split())
    assert done.exit_code == 1
    assert "no such part of it" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("tenants", "create", ""), "the name after 'tenants' is empty"),
        (
            ("subscriptions", "create", "acme/orders/new", ""),
            "the name after 'persistent/acme/orders/new/subscription' is empty",
        ),
        (("bookies", "decommission", ""), "is empty"),
    ],
)
def test_an_empty_name_is_not_sent_as_the_path_of_something_else(
    server: AdminServer, arguments: tuple[str, ...], text: str
) -> None:
    done = run(server, *arguments)
    assert (done.exit_code, server.requests) == (1, [])
    assert text in done.stderr


def test_an_error_whose_hints_cannot_be_had_is_told_all_the_same(server: AdminServer) -> None:
    server.answer(
        "GET /admin/v2/tenants/acne",
        404,
        {"reason": "no such tenant"},
        {"X-Pulsarish-Error-Code": "20"},
    )
    server.answer("GET /admin/v2/tenants", 503, {"reason": "the metadata store does not answer"})
    done = run(server, "tenants", "get", "acne")
    assert (done.exit_code, done.stderr) == (1, "error: NotFound: no such tenant\n")


@pytest.mark.parametrize(
    ("arguments", "request_line", "code", "text"),
    [
        ("namespaces delete acme/orders", f"DELETE {SPACE}", 38, "--force also deletes"),
        (
            "subscriptions delete acme/orders/new s",
            f"DELETE {NEW}/subscription/s",
            31,
            "--force disconnects",
        ),
    ],
)
def test_force_is_offered_where_it_helps(
    server: AdminServer, arguments: str, request_line: str, code: int, text: str
) -> None:
    server.answer(request_line, 409, {"reason": "in use"}, {"X-Pulsarish-Error-Code": str(code)})
    assert text in run(server, *arguments.split()).stderr
    assert text not in run(server, *arguments.split(), "--force").stderr


def test_who_cannot_be_reached_is_named_with_the_variable_that_says_so() -> None:
    with admin_server() as gone:
        pass
    done = run(gone, "topics", "list")
    assert done.exit_code == 1
    assert gone.url in done.stderr
    assert "PULSARISH_ADMIN_URL" in done.stderr
