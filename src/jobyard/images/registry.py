"""Image registry client: does a registry have an image already, and what is its digest?"""

from __future__ import annotations

import hashlib
import json
import re
import ssl
from collections.abc import Mapping
from http.client import HTTPException
from typing import NamedTuple
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode, urlsplit
from urllib.request import OpenerDirector, ProxyHandler, Request, build_opener

from jobyard import __version__
from jobyard.errors import UserError
from jobyard.images.credentials import Credentials, credentials_for
from jobyard.images.names import ImageName, Registry, is_loopback

ANSWER_SECONDS = 10.0
MANIFESTS = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_PARAMETER = re.compile(r'(\w+)="([^"]*)"')


class Challenge(NamedTuple):
    """How a registry wants to be asked again."""

    scheme: str  # basic or bearer
    parameters: Mapping[str, str]


class Answered(NamedTuple):
    status: int
    headers: Mapping[str, str]  # names in lower case
    body: bytes


def digest_of(name: ImageName) -> str | None:
    """None: the registry has none of that name, or does not say so to us. Raises UserError where it does not answer."""
    url = f"{name.registry.url}/v2/{name.path}/manifests/{name.tag}"
    opener = _opener(name.registry)
    headers = {"Accept": ", ".join(MANIFESTS)}
    answered = _ask(opener, "HEAD", url, headers, name.registry)
    if answered.status == 401 and (authorization := _authorization(opener, answered, name)):
        headers["Authorization"] = authorization
        answered = _ask(opener, "HEAD", url, headers, name.registry)
    if not _is_manifest(answered):
        return None
    digest = answered.headers.get("docker-content-digest", "")
    if _DIGEST.fullmatch(digest):
        return digest
    answered = _ask(opener, "GET", url, headers, name.registry)  # a registry need not send the digest
    return f"sha256:{hashlib.sha256(answered.body).hexdigest()}" if _is_manifest(answered) else None


def _is_manifest(answered: Answered) -> bool:
    """Not every answer is one: it may be a login page."""
    kind = answered.headers.get("content-type", "").partition(";")[0].strip().lower()
    return answered.status == 200 and kind in MANIFESTS


def parse_challenge(header: str) -> Challenge:
    """Of `WWW-Authenticate: Bearer realm="...",service="...",scope="..."`."""
    scheme, _, rest = header.strip().partition(" ")
    return Challenge(scheme.lower(), dict(_PARAMETER.findall(rest)))


def _authorization(opener: OpenerDirector, answered: Answered, name: ImageName) -> str:
    """The header for the second request; empty where we have no credentials."""
    challenge = parse_challenge(answered.headers.get("www-authenticate", ""))
    credentials = credentials_for(name.registry.host)
    if challenge.scheme == "basic":
        return credentials.basic if credentials and credentials.user else ""
    if challenge.scheme != "bearer" or not _may_be_asked(challenge.parameters.get("realm", ""), name.registry):
        return ""
    token = _token(opener, challenge, credentials, name)
    return f"Bearer {token}" if token else ""


def _may_be_asked(realm: str, registry: Registry) -> bool:
    """A password is sent over plain HTTP only where the registry itself uses it."""
    return realm.startswith("https://") or (registry.is_plain and realm.startswith("http://"))


def _token(opener: OpenerDirector, challenge: Challenge, credentials: Credentials | None, name: ImageName) -> str:
    said = challenge.parameters
    words = {"service": said.get("service", ""), "scope": said.get("scope") or f"repository:{name.path}:pull"}
    if credentials and credentials.identity_token:
        form = {
            **words,
            "grant_type": "refresh_token",
            "refresh_token": credentials.identity_token,
            "client_id": "yard",
        }
        answered = _ask(opener, "POST", said["realm"], {}, name.registry, urlencode(form).encode())
    else:
        headers = {"Authorization": credentials.basic} if credentials else {}
        mark = "&" if "?" in said["realm"] else "?"
        answered = _ask(opener, "GET", f"{said['realm']}{mark}{urlencode(words)}", headers, name.registry)
    try:
        found = json.loads(answered.body)
        return str(found.get("token") or found.get("access_token") or "")
    except (ValueError, AttributeError, RecursionError):
        return ""


def _opener(registry: Registry) -> OpenerDirector:
    """Past any proxy where the registry is on this machine."""
    return build_opener(ProxyHandler({}) if is_loopback(registry.host) else ProxyHandler())


def _ask(
    opener: OpenerDirector,
    method: str,
    url: str,
    headers: Mapping[str, str],
    registry: Registry,
    data: bytes | None = None,
) -> Answered:
    request = Request(url, data, {"User-Agent": f"jobyard/{__version__}"}, method=method)
    for header, value in headers.items():
        is_ours_alone = header == "Authorization"  # not sent on to the target of a redirect
        (request.add_unredirected_header if is_ours_alone else request.add_header)(header, value)
    try:
        with opener.open(request, timeout=ANSWER_SECONDS) as answer:
            return Answered(answer.status, _lower(answer.headers.items()), answer.read())
    except HTTPError as error:
        with error:
            return Answered(error.code, _lower(error.headers.items()), b"")
    except (OSError, HTTPException) as error:
        raise _unreachable(registry, url, error) from error


def _lower(headers: object) -> dict[str, str]:
    return {str(name).lower(): str(value) for name, value in headers}  # type: ignore[attr-defined]


def _unreachable(registry: Registry, url: str, error: Exception) -> UserError:
    reason = error.reason if isinstance(error, URLError) else error
    if isinstance(reason, ssl.SSLError) and "WRONG_VERSION_NUMBER" in str(reason):
        return UserError(f"the registry {registry.host} speaks no TLS; if that is meant, name it as http://{registry}")
    why = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
    host = urlsplit(url).netloc
    return UserError(
        f"the registry {host} cannot be reached: {why}; check its address, or name another with --registry"
    )
