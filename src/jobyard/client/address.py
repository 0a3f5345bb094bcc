"""Server address: where is the server? A Unix socket, or a URL with a token."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import urlsplit

from jobyard.errors import UserError


@dataclass(frozen=True)
class Address:
    """A Unix socket (`socket` set) or a TCP server. A token is never shown."""

    socket: str = ""
    host: str = ""
    port: int = 0
    tls: bool = False
    prefix: str = ""  # the path that a proxy puts before /api/v1
    token: str = field(default="", repr=False)

    @property
    def is_local(self) -> bool:
        """Only a Unix socket is known to stay on this machine."""
        return bool(self.socket)

    def __str__(self) -> str:
        if self.socket:
            return f"unix:{self.socket}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}{self.prefix}"


def parse_address(url: str, token: str = "") -> Address:
    """`http://HOST:PORT`, `https://HOST`, or `unix:PATH`, as in YARD_URL."""
    wrong = UserError(f"cannot read {url!r}; write http://HOST:PORT, https://HOST or unix:PATH", field="YARD_URL")
    if url.startswith("unix:"):
        path = url.removeprefix("unix:").removeprefix("//")
        if not path.startswith("/"):
            raise wrong
        return Address(socket=path, token=token)
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise wrong from None
    if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment:
        raise wrong
    if parts.username or parts.password:
        raise UserError("it must not carry a name or password; put the token in YARD_TOKEN", field="YARD_URL")
    if not token.isascii() or not token.isprintable():
        raise UserError(
            "it holds characters that no token has; copy it again from `yard token create`", field="YARD_TOKEN"
        )
    tls = parts.scheme == "https"
    return Address(host=host, port=port or (443 if tls else 80), tls=tls, prefix=parts.path.rstrip("/"), token=token)
