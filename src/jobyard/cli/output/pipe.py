"""Pipe: does anybody still read what we print?"""

from __future__ import annotations

import os
import select
from typing import TextIO


def nobody_reads(*descriptors: int) -> bool:
    """Whether one of these outputs of ours was closed, as by `| head`: then a broken pipe is no error."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, 0)
    return any(found & select.POLLERR for _, found in poll.poll(0))


def silence(stream: TextIO) -> None:
    """Whatever is still written to it goes nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
