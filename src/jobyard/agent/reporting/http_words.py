"""HTTP of the report endpoint: how are requests read and answered? HTTP/1.1, only the parts that are needed."""

from __future__ import annotations

import re
from typing import Dict, NamedTuple, Optional
from urllib.parse import unquote, urlsplit

LARGEST_HEAD = 1 << 14
LARGEST_BODY = 1 << 16
_REQUEST_LINE = re.compile(rb"([A-Z]{1,20}) ([!-~]{1,4096}) HTTP/1\.([01])")
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):(.*)", re.DOTALL)
_PHRASES = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    411: "Length Required",
    413: "Payload Too Large",
    417: "Expectation Failed",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Refused(Exception):
    """What was asked cannot be done; the sentence is for the client. Raised by `take`: nothing can be read after it."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class Request(NamedTuple):
    method: str
    path: str
    headers: Dict[str, str]  # names in lower case
    body: bytes
    keeps_open: bool


class Head(NamedTuple):
    method: str
    path: str
    headers: Dict[str, str]
    size: int  # of the head itself
    body_size: int
    keeps_open: bool

    @property
    def expects_continue(self) -> bool:
        return "expect" in self.headers


def take(buffer: bytearray, head: Optional[Head] = None) -> "tuple[Optional[Head], Optional[Request]]":
    """The next request, removed from the buffer, or as much as is known of it. Raises Refused.

    A head that was answered without its request is given back with more bytes behind it.
    """
    if head is None:
        while buffer[:2] == b"\r\n":  # what some clients send after a body
            del buffer[:2]
        head = _head(buffer)
    if head is None or len(buffer) < head.size + head.body_size:
        return head, None
    body = bytes(buffer[head.size : head.size + head.body_size])
    del buffer[: head.size + head.body_size]
    return head, Request(head.method, head.path, head.headers, body, head.keeps_open)


def _head(buffer: bytearray) -> Optional[Head]:
    end = buffer.find(b"\r\n\r\n", 0, LARGEST_HEAD)
    if end < 0:
        if len(buffer) >= LARGEST_HEAD:
            raise Refused(431, "the head of the request is longer than %d bytes" % LARGEST_HEAD)
        line_end = buffer.find(b"\n")
        if line_end >= 0 and not _REQUEST_LINE.fullmatch(bytes(buffer[:line_end]).rstrip(b"\r")):
            raise Refused(400, "this is not an HTTP/1.1 request")
        if line_end < 0 and len(buffer) > 8 and not re.match(rb"[A-Z]{1,20} ", bytes(buffer[:21])):
            raise Refused(400, "this is not an HTTP request; this address speaks plain HTTP, no TLS")
        return None
    first, *lines = bytes(buffer[:end]).split(b"\r\n")
    match = _REQUEST_LINE.fullmatch(first)
    if not match:
        raise Refused(400, "this is not an HTTP/1.1 request")
    headers = _headers(lines)
    words = headers.get("connection", "").lower()
    keeps_open = "close" not in words if match[3] == b"1" else "keep-alive" in words
    return Head(match[1].decode(), _path(match[2]), headers, end + 4, _body_size(headers), keeps_open)


def _headers(lines: "list[bytes]") -> Dict[str, str]:
    headers: Dict[str, str] = {}
    for line in lines:
        match = _HEADER.fullmatch(line)
        if not match:
            raise Refused(400, "a header cannot be read")
        name, value = match[1].decode().lower(), match[2].strip(b" \t").decode("latin-1")
        if name in ("content-length", "authorization") and headers.get(name, value) != value:
            raise Refused(400, "there are two different %s headers" % name)
        headers[name] = value
    return headers


def _path(target: bytes) -> str:
    """The path of a request; one to a proxy names a host before it, which is dropped."""
    try:
        path = urlsplit(target.decode("ascii")).path if not target.startswith(b"/") else target.decode("ascii")
    except ValueError:
        raise Refused(400, "the address cannot be read") from None
    return unquote(path.split("?", 1)[0].split("#", 1)[0])


def _body_size(headers: Dict[str, str]) -> int:
    if "transfer-encoding" in headers:
        raise Refused(411, "a body must come in one piece, with its Content-Length")
    if headers.get("expect", "100-continue").lower() != "100-continue":
        raise Refused(417, "nothing but 100-continue can be expected")
    length = headers.get("content-length", "0")
    if not (length.isascii() and length.isdigit() and len(length) < 19):
        raise Refused(400, "Content-Length is no number")
    if len(length) > 9 or int(length) > LARGEST_BODY:
        raise Refused(413, "a body may have at most %d bytes" % LARGEST_BODY)
    return int(length)


def answer(status: int, body: str, keeps_open: bool) -> bytes:
    content = body.encode()
    head = (
        "HTTP/1.1 %d %s\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nConnection: %s\r\n\r\n"
        % (
            status,
            _PHRASES.get(status, "Error"),
            len(content),
            "keep-alive" if keeps_open else "close",
        )
    )
    return head.encode() + content
