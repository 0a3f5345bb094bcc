"""Random requests, made from /openapi.json, to a real server with a real agent: it answers each as it has declared.

Whatever a request would run is replaced: it runs `true`, in a directory of the test, and nothing leaves this machine.
JOBYARD_OPENAPI_EXAMPLES says how many requests of each kind an operation gets; `make soak` makes 500.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode, checks
from schemathesis.core.transport import Response

from jobyard.server.app import make_app
from tests.security.servers import UnixConnection, asked_on_socket
from tests.yards import TemporaryYard


def with_alternatives(document: Any) -> Any:
    """The same document, its patterns `^X*$` as `^(|X*)$` and `^X+$` as `^(X|X+)$`. Schemathesis writes the longest
    length into the first form, `^X{0,131071}$`, and then needs seconds to compile it for each bad request."""
    match document:
        case [*items]:
            return [with_alternatives(item) for item in items]
        case {"pattern": str(pattern), **rest}:
            least = pattern[1:-2] if pattern.endswith("+$") else ""
            return {**with_alternatives(rest), "pattern": f"^({least}|{pattern[1:-1]})$"}
        case {**fields}:
            return {key: with_alternatives(item) for key, item in fields.items()}
    return document


EXAMPLES = int(os.environ.get("JOBYARD_OPENAPI_EXAMPLES", "20"))
NO_YARD: Any = None
DOCUMENT = make_app(NO_YARD).openapi()
OPERATIONS = {
    operation.label: operation
    for found in schemathesis.openapi.from_dict(with_alternatives(DOCUMENT)).get_all_operations()
    for operation in [cast(Any, found).ok()]
}
BASE = "http://localhost"
SUBMIT = "POST /api/v1/jobs"
KEEPER = "1"  # the number of the job for which the server may not be stopped
SELECTORS = ["last", "2", "3", "ended", "array", "array/1", "²", "059"]
CHECKS: list[Any] = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
]


@pytest.fixture(scope="module")
def yard() -> Iterator[TemporaryYard]:
    """A yard with a job that runs, one that has ended, and an array; its streams say soon that they live."""
    with TemporaryYard(YARD_HEARTBEAT_SECONDS="0.05") as yard:
        yard.submit("-n", "keeper", "--cpus", "0.1", "--", "sleep", "infinity")
        yard.ok("run", "-q", "-n", "ended", "--", "true")
        yard.run("run", "-q", "-n", "array", "-a", "0-3", "--", "bash", "-c", "exit $((SLURM_ARRAY_TASK_ID % 2))")
        yield yard


@dataclass(frozen=True)
class Harmless:
    """What a made-up body may say without doing anything; values of a wrong type stay, because they are refused."""

    work: str

    def of(self, value: Any, name: str = "") -> Any:
        match name, value:
            case "argv", [*words] if words and all(isinstance(word, str) for word in words):
                return ["true"]
            case (("shell" | "text"), str()):
                return "#!/bin/true\n" if name == "text" else "true"
            case "lines", str():
                return "true\n" * min(3, value.count("\n"))
            case "workdir", str():
                return self.work
            case (("count" | "completions"), int() | float()) if not isinstance(value, bool):
                return min(value, 3)  # a whole number may be written as 1465466.0
            case (("container" | "force"), bool()):
                return False
            case (("mounts" | "ports"), list()):
                return []
            case "host", str():
                return "127.0.0.1"
            case "port", int():
                return 1
            case (("kubeconfig" | "key_path"), str()):
                return "/nowhere"
            case _, dict():
                return {key: self.of(item, key) for key, item in value.items()}
            case _, list():
                return [self.of(item) for item in value]
        return value


def tame(body: Any, work: str) -> dict[str, Any]:
    """A submit that this yard takes, as far as it can be said: for one group, on a machine, with little of it."""
    group = {**body["spec"]["groups"][0], "command": {"argv": ["true"]}, "resources": {"cpu_millis": 10}}
    alone = {**group, "array": None, "count": 1, "parallelism": None, "least_device_mib": 0}
    container = {**body["spec"].get("container", {}), "build": None}
    plain: dict[str, Any] = {"after": [], "on": "", "kubernetes": {}, "elastic": None, "workdir": work, "staging": {}}
    submitter = {**body["spec"].get("submitter", {}), "submitted_with": "", "environment": ""}
    plain |= {"cluster": "", "submitter": submitter, "policy": {**body["spec"].get("policy", {}), "limit": None}}
    spec = {**body["spec"], **plain, "groups": [alone], "container": container}
    return {**body, "dry_run": False, "render": False, "spec": spec}


def sent(yard: TemporaryYard, case: schemathesis.Case[Any]) -> Response:
    """The answer; of a stream its beginning."""
    request = requests.Request(**case.as_transport_kwargs(base_url=BASE)).prepare()
    assert request.url
    connection = UnixConnection(yard.socket)
    try:
        path = request.url.removeprefix(BASE)
        connection.request(str(request.method), path, cast(Any, request.body), dict(request.headers))
        answer = connection.getresponse()
        is_stream = answer.headers.get_content_type() == "text/event-stream"
        content = answer.read1(65536) if is_stream else answer.read()
        headers = {name.lower(): [value] for name, value in answer.getheaders()}
        return Response(answer.status, headers, content, request, elapsed=0.0, verify=False, stream_cut_short=is_stream)
    finally:
        connection.close()


def kinds() -> Iterator[Any]:
    """Each operation with good requests, and with bad ones where it takes anything that can be wrong."""
    for label, operation in OPERATIONS.items():
        yield pytest.param(label, GenerationMode.POSITIVE, id=f"{label} good")
        if any((operation.path_parameters, operation.query, operation.headers, operation.body)):
            yield pytest.param(label, GenerationMode.NEGATIVE, id=f"{label} bad")


@pytest.mark.timeout(1200)  # bodies of POST /jobs take long to make up
@pytest.mark.parametrize(("label", "mode"), [*kinds()])
def test_every_operation_answers_as_it_has_declared(yard: TemporaryYard, label: str, mode: GenerationMode) -> None:
    operation, is_good = OPERATIONS[label], mode is GenerationMode.POSITIVE
    statuses: Counter[int] = Counter()
    harmless = Harmless(str(yard.work))

    @given(
        case=operation.as_strategy(generation_mode=mode),
        selector=st.none() | st.sampled_from(SELECTORS),
        is_tame=st.booleans(),
    )
    @settings(
        max_examples=EXAMPLES,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
        database=None,
    )
    def answers(case: schemathesis.Case[Any], selector: str | None, is_tame: bool) -> None:
        if selector and is_good and "selector" in case.path_parameters:
            case.path_parameters["selector"] = selector
        assume(KEEPER not in map(str, case.path_parameters.values()))
        body, query = case.body, case.query
        case.body, case.query = harmless.of(case.body), harmless.of(case.query)
        if label == SUBMIT and is_good and is_tame:
            case.body = tame(case.body, harmless.work)
        if label.endswith("/server/stop"):
            case.query = {**(case.query or {}), "force": "false"}
        is_as_made = body == case.body and query == case.query
        answer = sent(yard, case)
        statuses[answer.status_code] += 1
        wanted = CHECKS if is_good or not is_as_made else [*CHECKS, checks.negative_data_rejection]
        case.validate_response(answer, checks=wanted)

    answers()
    assert label != SUBMIT or not is_good or statuses[201], f"no job was taken: {statuses}"
    server = asked_on_socket(yard.socket, "GET", "server").json
    assert (server["jobs_active"] > 0, server["troubles"]) == (True, [])


def test_the_server_declares_what_the_tests_are_made_from(yard: TemporaryYard) -> None:
    assert asked_on_socket(yard.socket, "GET", "/openapi.json").json == DOCUMENT
