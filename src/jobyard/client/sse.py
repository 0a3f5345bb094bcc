"""Server-sent events: how is a stream of them parsed?

By https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from jobyard.client.transport import Answer
from jobyard.errors import YardError

# A job is submitted in at most 64 MiB, and JSON may write a character of two bytes as six.
LINE_BYTES_MOST = 256 << 20


class ServerEvent(NamedTuple):
    name: str
    data: str
    id: str


def events_of(answer: Answer) -> Iterator[ServerEvent]:
    """Whole events as they come; one that was cut off is dropped. Raises Lost when the link breaks."""
    name, last_id = "", ""
    data: list[str] = []
    for line in _lines(answer):
        if not line:
            if data:
                yield ServerEvent(name or "message", "\n".join(data), last_id)
            name, data = "", []
            continue
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        match field:
            case "event":
                name = value
            case "data":
                data.append(value)
            case "id" if "\0" not in value:
                last_id = value


def _lines(answer: Answer) -> Iterator[str]:
    """Each byte is looked at once, however long a line is and in however small pieces it comes."""
    begun = bytearray()
    while piece := answer.read_some():
        *ends, rest = piece.split(b"\n")
        for end in ends:
            begun += end
            yield begun.removesuffix(b"\r").decode("utf-8", "replace")
            begun = bytearray()
        begun += rest
        if len(begun) > LINE_BYTES_MOST:
            most = LINE_BYTES_MOST >> 20
            raise YardError(f"the server sent a line of more than {most} MiB; check that a yard listens there")
