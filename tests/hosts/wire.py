"""A slow wire, for kernels without sch_netem: `wire.py TAP LINK` carries frames between the two, each one late.

A program of its own. Input: seconds of delay each way, one line per change; it ends with its input, and TAP with it.
PACKET_VNET_HDR and IFF_VNET_HDR hand checksums and segments over unfinished, as between any two virtual devices.
"""

from __future__ import annotations

import fcntl
import os
import select
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Callable

TUNSETIFF, TUNSETOFFLOAD = 0x400454CA, 0x400454D0  # linux/if_tun.h
IFF_TAP, IFF_NO_PI, IFF_VNET_HDR = 0x0002, 0x1000, 0x4000
TUN_F_CSUM_TSO4_TSO6 = 0x1 | 0x2 | 0x4
SOL_PACKET, PACKET_ADD_MEMBERSHIP, PACKET_VNET_HDR, PACKET_IGNORE_OUTGOING = 263, 1, 15, 23  # linux/if_packet.h
PACKET_MR_PROMISC = 1
ETH_P_ALL = 3
SO_RCVBUFFORCE = 33
LONGEST = 1 << 17  # a segment of 64 KiB with its headers

Late = tuple[float, bytes, Callable[[bytes], int]]


def open_tap(name: str) -> int:
    tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TAP | IFF_NO_PI | IFF_VNET_HDR))
    fcntl.ioctl(tap, TUNSETOFFLOAD, TUN_F_CSUM_TSO4_TSO6)
    return tap


def open_link(name: str) -> socket.socket:
    link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    link.setblocking(False)
    link.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
    link.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    link.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 24)
    link.bind((name, ETH_P_ALL))
    membership = struct.pack("iHH8x", socket.if_nametoindex(name), PACKET_MR_PROMISC, 0)
    link.setsockopt(SOL_PACKET, PACKET_ADD_MEMBERSHIP, membership)
    return link


def carry(tap: int, link: socket.socket) -> None:
    """Until the input ends. A frame that a device refuses is lost, as on a wire."""
    delay_seconds = 0.0
    late: deque[Late] = deque()
    while True:
        wait = max(0.0, late[0][0] - time.monotonic()) if late else None
        ready, _, _ = select.select([0, tap, link.fileno()], [], [], wait)
        now = time.monotonic()
        if 0 in ready:
            line = os.read(0, 4096).split()
            if not line:
                return
            delay_seconds = float(line[-1])
        for source, read, write in (
            (tap, lambda: os.read(tap, LONGEST), link.send),
            (link.fileno(), lambda: link.recv(LONGEST), lambda frame: os.write(tap, frame)),
        ):
            if source in ready:
                take_all(read, write, now + delay_seconds, late)
        while late and late[0][0] <= now:
            _, frame, write = late.popleft()
            try:
                write(frame)
            except OSError:
                continue


def take_all(read: Callable[[], bytes], write: Callable[[bytes], int], due: float, late: deque[Late]) -> None:
    try:
        while True:
            late.append((due, read(), write))
    except OSError:  # no more for now, or the device is down
        return


if __name__ == "__main__":
    ends = open_tap(sys.argv[1]), open_link(sys.argv[2])
    print("ready", flush=True)
    carry(*ends)
