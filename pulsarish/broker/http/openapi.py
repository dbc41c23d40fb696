"""The OpenAPI document of the admin interface, generated from the routes: it cannot differ from
what the HTTP port does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from pulsarish.broker.clients.authorization import Permission
from pulsarish.broker.http.json_bodies import ErrorBody, Json
from pulsarish.broker.http.route import NOTHING, Call, Lane, Parameter, Route
from pulsarish.runtime.seams import HttpResponse
from pulsarish.runtime.version import program_version

__all__ = ["document", "openapi_route"]

# Answers of the HTTP port itself, for every route.
_ALWAYS: Final = {
    400: "The request is not of the route's form; the reason names the parameter or field.",
    403: "Not permitted.",
    404: "There is no such thing; the reason names it.",
    412: "What is asked for is not allowed; the reason names the value and the allowed range.",
    413: "The body is too large.",
    429: "A limit of the broker is reached.",
    431: "The headers are too large.",
    500: "A defect of the broker.",
    501: "This version does not have it.",
    503: "Not now: the same request may succeed later.",
    504: "Not done in time; the reason names what it waits for.",
}
_SOMETIMES: Final = {
    204: "Nothing is set.",
    405: "It cannot be done to this kind of thing.",
    409: "It exists already, or is in use, or goes with nothing that is there.",
    422: "The definition of the schema is none of its type.",
}
_REFS: Final = "#/components/schemas/{name}"


def document(routes: Sequence[Route], version: str) -> Json:
    """Return the document in the form of OpenAPI 3.1."""
    kinds: list[Any] = [ErrorBody]
    for route in routes:
        kinds += [
            kind for kind in (route.body, route.answers) if kind is not None and kind is not NOTHING
        ]
    schemas, components = msgspec.json.schema_components(kinds, ref_template=_REFS)
    found = iter(schemas)
    error = next(found)
    paths: dict[str, Any] = {}
    for route in routes:
        body = next(found) if route.body is not None else None
        answers = next(found) if route.answers is not NOTHING else None
        operation = {
            "operationId": _operation_id(route),
            "summary": route.summary,
            "tags": [
                route.pattern.split("/")[3]
                if route.pattern.startswith("/admin/")
                else route.pattern.split("/")[1]
            ],
            "parameters": [*_in_path(route), *(_parameter(each, "query") for each in route.query)],
            "responses": _responses(route, answers),
        }
        if body is not None:
            operation["requestBody"] = {
                "required": route.body_required,
                "content": {"application/json": {"schema": body}},
            }
        paths.setdefault(route.pattern, {})[route.method.lower()] = operation
    failed = {"description": "Refused.", "content": {"application/json": {"schema": error}}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Pulsarish administration", "version": version},
        "paths": paths,
        "components": {"schemas": components, "responses": {"Refused": failed}},
    }


def _operation_id(route: Route) -> str:
    return "_".join(
        [route.method.lower(), *(part.strip("{}") for part in route.pattern.strip("/").split("/"))]
    )


def _in_path(route: Route) -> list[Json]:
    known = {parameter.name: parameter for parameter in route.parameters}
    return [_parameter(known.get(name, Parameter(name, "")), "path") for name in route.path_names]


def _parameter(parameter: Parameter, place: str) -> Json:
    schema: Json = {"type": {str: "string", int: "integer", bool: "boolean"}[parameter.kind]}
    if parameter.choices:
        schema["enum"] = list(parameter.choices)
    if parameter.minimum is not None:
        schema["minimum"] = parameter.minimum
    if parameter.maximum is not None:
        schema["maximum"] = parameter.maximum
    if parameter.default is not None and place == "query":
        schema["default"] = parameter.default
    if place == "path" and parameter.kind is str and not parameter.choices:
        schema["minLength"] = 1
    return {
        "name": parameter.name,
        "in": place,
        "required": place == "path" or parameter.required,
        "description": parameter.meaning,
        "schema": schema,
    }


def _responses(route: Route, answers: Json | None) -> Json:
    found: Json = {}
    if answers is None:
        found["204"] = {"description": "Done."}
    else:
        is_json = route.answer_type == "application/json"
        found["200"] = {
            "description": "The answer.",
            "content": {route.answer_type: {"schema": answers if is_json else {"type": "string"}}},
        }
    if route.owner:
        found["307"] = {
            "description": "Another broker has to do it.",
            "headers": {"Location": {"required": True, "schema": {"type": "string"}}},
        }
    refusals = _ALWAYS | {status: (_SOMETIMES | _ALWAYS)[status] for status in route.statuses}
    for status in sorted(refusals):
        if status == 204:
            found["204"] = {"description": refusals[status]}
        else:
            found[str(status)] = {"$ref": "#/components/responses/Refused"}
    return dict(sorted(found.items()))


def openapi_route(routes: Sequence[Route]) -> Route:
    """Return the route that serves the document, itself included.

    The first request generates it.
    """
    written: list[bytes] = []

    async def serve(call: Call) -> HttpResponse:
        if not written:
            written.append(
                msgspec.json.encode(
                    document(
                        [*(route for route in routes if route.described), own], program_version()
                    )
                )
            )
        return HttpResponse(200, written[0])

    own = Route(
        "GET",
        "/admin/v2/openapi.json",
        serve,
        Permission.NONE,
        "This document.",
        answers=Json,
        lane=Lane.PROMPT,
    )
    return own
