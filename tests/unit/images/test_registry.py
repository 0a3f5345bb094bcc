"""Does a registry have an image? Asked of small servers that answer as the specification and real registries do."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from jobyard.errors import UserError
from jobyard.images.credentials import Credentials, credentials_for
from jobyard.images.names import ImageName, Registry, parse_registry
from jobyard.images.registry import digest_of, parse_challenge

DIGEST = f"sha256:{'a1' * 32}"
MANIFEST = {"Content-Type": "application/vnd.oci.image.manifest.v1+json; charset=utf-8"}
GOOD = {**MANIFEST, "Docker-Content-Digest": DIGEST}
Answer = Callable[[BaseHTTPRequestHandler], tuple[int, dict[str, str], bytes]]


@contextmanager
def answering(answer: Answer) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, headers, body = answer(self)
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(b"" if self.command == "HEAD" else body)

        do_HEAD = do_GET

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(autouse=True)
def docker_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where `docker login` would leave its words; nobody has logged in yet."""
    for name in ("REGISTRY_AUTH_FILE", "XDG_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    return tmp_path / "config.json"


def an_image(host: str) -> ImageName:
    return ImageName(parse_registry(f"{host}/team", "--registry"), "app", "1")


def log_in(config: Path, host: str) -> None:
    config.write_text(json.dumps({"auths": {host: {"auth": base64.b64encode(b"ada:sesame").decode()}}}))


def test_the_digest_is_what_the_registry_says_of_the_tag() -> None:
    asked = []

    def answer(request: BaseHTTPRequestHandler) -> tuple[int, dict[str, str], bytes]:
        asked.append((request.command, request.path, request.headers["Accept"]))
        return 200, GOOD, b""

    with answering(answer) as host:
        assert digest_of(an_image(host)) == DIGEST
    ((method, path, accept),) = asked
    assert (method, path) == ("HEAD", "/v2/team/app/manifests/1")
    assert "vnd.oci.image.index" in accept
    assert "vnd.docker.distribution.manifest.v2" in accept


def test_a_registry_that_sends_no_digest_is_asked_for_the_content() -> None:
    with answering(lambda _: (200, MANIFEST, b"{}")) as host:
        assert digest_of(an_image(host)) == f"sha256:{hashlib.sha256(b'{}').hexdigest()}"


def test_a_page_is_no_image_and_neither_is_what_cannot_be_read() -> None:
    with answering(lambda _: (200, {"Content-Type": "text/html", "Docker-Content-Digest": DIGEST}, b"log in")) as host:
        assert digest_of(an_image(host)) is None
    with answering(lambda request: (200 if request.command == "HEAD" else 500, MANIFEST, b"{}")) as host:
        assert digest_of(an_image(host)) is None


def test_docker_hub_is_asked_at_its_address() -> None:
    assert Registry("docker.io", "ada").url == "https://registry-1.docker.io"
    assert ImageName(Registry("docker.io", "ada"), "app", "1").familiar == "ada/app"
    assert ImageName(Registry("lab"), "app", "1").familiar == "lab/app"


@pytest.mark.parametrize("status", [404, 403, 401, 500])
def test_an_image_that_is_not_there_or_not_shown_to_us_is_none(status: int) -> None:
    with answering(lambda _: (status, {}, b"")) as host:
        assert digest_of(an_image(host)) is None


def test_a_registry_that_does_not_answer_is_one_sentence() -> None:
    with answering(lambda _: (200, {}, b"")) as host:
        pass
    with pytest.raises(UserError, match=rf"the registry {host} cannot be reached: Connection refused"):
        digest_of(an_image(host))


def test_a_registry_without_tls_says_how_it_could_be_named() -> None:
    with answering(lambda _: (200, {}, b"")) as host:
        name = ImageName(Registry(host, "team"), "app", "1")
        with pytest.raises(UserError, match=rf"speaks no TLS; .* http://{host}/team"):
            digest_of(name)


def test_who_is_logged_in_shows_name_and_password_when_asked(docker_config: Path) -> None:
    def answer(request: BaseHTTPRequestHandler) -> tuple[int, dict[str, str], bytes]:
        if request.headers.get("Authorization") == Credentials("ada", "sesame").basic:
            return 200, GOOD, b""
        return 401, {"WWW-Authenticate": 'Basic realm="lab"'}, b""

    with answering(answer) as host:
        assert digest_of(an_image(host)) is None
        log_in(docker_config, host)
        assert digest_of(an_image(host)) == DIGEST


def test_a_redirect_leads_there_without_the_password(docker_config: Path) -> None:
    shown = []

    def elsewhere(request: BaseHTTPRequestHandler) -> tuple[int, dict[str, str], bytes]:
        shown.append(request.headers.get("Authorization"))
        return 200, GOOD, b""

    with answering(elsewhere) as other:

        def answer(request: BaseHTTPRequestHandler) -> tuple[int, dict[str, str], bytes]:
            if request.headers.get("Authorization"):
                return 307, {"Location": f"http://{other}{request.path}"}, b""
            return 401, {"WWW-Authenticate": 'Basic realm="lab"'}, b""

        with answering(answer) as host:
            log_in(docker_config, host)
            assert digest_of(an_image(host)) == DIGEST
    assert shown == [None]


@pytest.mark.parametrize("is_logged_in", [True, False])
def test_a_token_service_is_asked_as_the_challenge_says(docker_config: Path, is_logged_in: bool) -> None:
    asked = []

    def answer(request: BaseHTTPRequestHandler) -> tuple[int, dict[str, str], bytes]:
        if request.path.startswith("/token"):
            asked.append((request.path, request.headers.get("Authorization")))
            return 200, {}, b'{"token": "t0k3n"}'
        if request.headers.get("Authorization") == "Bearer t0k3n":
            return 200, GOOD, b""
        realm = f"http://{request.headers['Host']}/token"
        scope = "repository:team/app:pull"
        return 401, {"WWW-Authenticate": f'Bearer realm="{realm}",service="lab",scope="{scope}"'}, b""

    with answering(answer) as host:
        if is_logged_in:
            log_in(docker_config, host)
        assert digest_of(an_image(host)) == DIGEST
    ((path, authorization),) = asked
    assert path == "/token?service=lab&scope=repository%3Ateam%2Fapp%3Apull"
    assert authorization == (Credentials("ada", "sesame").basic if is_logged_in else None)


def test_a_challenge_is_read_whatever_its_case() -> None:
    challenge = parse_challenge('bearer realm="https://auth.lab/t?a=1",service="x y",scope="repository:a/b:pull,push"')
    assert challenge.scheme == "bearer"
    assert challenge.parameters["realm"] == "https://auth.lab/t?a=1"
    assert challenge.parameters["scope"] == "repository:a/b:pull,push"


def test_a_credential_helper_is_asked_where_docker_names_one(
    docker_config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    helper = tmp_path / "docker-credential-test"
    helper.write_text('#!/bin/sh\nread host; echo "{\\"Username\\": \\"ada\\", \\"Secret\\": \\"for $host\\"}"\n')
    helper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    docker_config.write_text(json.dumps({"credHelpers": {"registry.lab": "test"}}))
    assert credentials_for("registry.lab") == Credentials("ada", "for registry.lab")
    assert credentials_for("other.lab") is None


def test_podmans_logins_count_too_and_broken_files_are_passed_over(
    docker_config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    docker_config.write_text("{not json")
    log_in(tmp_path / "auth.json", "registry.lab")
    monkeypatch.setenv("REGISTRY_AUTH_FILE", str(tmp_path / "auth.json"))
    assert credentials_for("registry.lab") == Credentials("ada", "sesame")
