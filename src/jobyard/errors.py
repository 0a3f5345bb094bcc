"""Errors: which deliberate errors are there, and who must act on each? One tree.

    YardError
    ├── UserError            the request is wrong: fix it (exit 2, HTTP 4xx)
    │   ├── NotFound         no such job, task, node, token
    │   ├── KeyInUse         another job has been submitted with this key (exit 2, HTTP 409)
    │   ├── Unwritable       the yard's disk is full or read-only: make room (exit 2, HTTP 507)
    │   ├── WebhookRefused   a webhook of the cluster does not want the job (exit 2, HTTP 400)
    │   ├── TooLarge         more than one request may have (exit 2, HTTP 413)
    │   ├── TooMany          more at the same time than one caller may have (exit 2, HTTP 429)
    │   ├── Forbidden        no token, or a wrong one (HTTP 401)
    │   └── NotAllowed       a good token, but not for this (HTTP 403)
    ├── NothingLeft          all that was asked for is done already: no error, only the end (exit 0)
    ├── BuildFailed          the image was not made, or not pushed (exit 1)
    ├── TaskFailed           a task did not succeed, and its result was asked for (exit 1)
    ├── OutputDamaged        what a task wrote cannot be read any more (exit 1)
    ├── Unreachable          the yard's server cannot be reached (exit 3)
    ├── ExecutorError
    │   ├── Unavailable      try again
    │   └── Rejected         do not try again
    └── Bug                  our fault
        └── InvalidMove      an event that the state machine has no arrow for

A `code` is stable: it crosses the wire, and the client raises the same class again.
"""

from __future__ import annotations


class YardError(Exception):
    code = "error"
    http_status = 500
    exit_code = 1


class UserError(YardError):
    code = "bad_request"
    http_status = 400
    exit_code = 2

    def __init__(self, sentence: str = "", *, field: str = "") -> None:
        """`field` is what is wrong: a flag, a key, or a place in a request. It stands before the sentence."""
        super().__init__(f"{field}: {sentence}" if field else sentence)
        self.sentence = sentence
        self.field = field


class NotFound(UserError):
    code = "not_found"
    http_status = 404


class KeyInUse(UserError):
    code = "key_in_use"
    http_status = 409


class Unwritable(UserError):
    code = "unwritable"
    http_status = 507


class WebhookRefused(UserError):
    code = "webhook_refused"


class TooLarge(UserError):
    code = "too_large"
    http_status = 413


class TooMany(UserError):
    code = "too_many"
    http_status = 429


class Forbidden(UserError):
    code = "forbidden"
    http_status = 401


class NotAllowed(UserError):
    code = "not_allowed"
    http_status = 403


class NothingLeft(YardError):
    code = "nothing_left"
    http_status = 400
    exit_code = 0


class BuildFailed(YardError):
    code = "build_failed"

    def __init__(self, sentence: str, last_lines: tuple[str, ...] = ()) -> None:
        """`last_lines` are those of the build's log."""
        super().__init__(sentence)
        self.last_lines = last_lines


class TaskFailed(YardError):
    code = "task_failed"


class OutputDamaged(YardError):
    code = "output_damaged"


class Unreachable(YardError):
    code = "unreachable"
    http_status = 503
    exit_code = 3


class ExecutorError(YardError):
    code = "executor_error"


class Unavailable(ExecutorError):
    code = "unavailable"
    http_status = 503


class Rejected(ExecutorError):
    code = "rejected"


class Bug(YardError):
    code = "bug"


class InvalidMove(Bug):
    code = "invalid_move"


def _family(cls: type[YardError]) -> list[type[YardError]]:
    return [cls, *(member for child in cls.__subclasses__() for member in _family(child))]


BY_CODE: dict[str, type[YardError]] = {cls.code: cls for cls in _family(YardError)}
