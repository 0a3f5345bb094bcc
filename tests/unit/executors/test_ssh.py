"""What is said when ssh fails: the way out works as it stands."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobyard.executors.ssh import SshAgent
from jobyard.model.ssh_target import SshTarget

BARE, FULL = SshTarget("gpu3"), SshTarget("10.0.0.7", "ben", 2222, "/home/ben/my keys/id")
SSH = "`ssh -p 2222 -i '/home/ben/my keys/id' ben@10.0.0.7"


@pytest.mark.parametrize(
    ("target", "said", "way_out"),
    [
        (FULL, "Permission denied (publickey).", f"check the user and the key with {SSH} true`"),
        (FULL, "Host key verification failed.", f"log in once with {SSH}`"),
        (FULL, "REMOTE HOST IDENTIFICATION HAS CHANGED", "`ssh-keygen -R '[10.0.0.7]:2222'`"),
        (FULL, "Connection refused", "check port 2222 and that sshd runs"),
        (FULL, "Connection timed out", "10.0.0.7 does not answer (timed out); check the address, port 2222"),
        (FULL, "No route to host", "there is no route to 10.0.0.7"),
        (FULL, "kex_exchange_identification", f"try {SSH} true` by hand"),
        (BARE, "Permission denied (publickey).", "check the user and the key with `ssh gpu3 true`"),
        (BARE, "REMOTE HOST IDENTIFICATION HAS CHANGED", "`ssh-keygen -R gpu3`"),
        (BARE, "Connection refused", "check the port and that sshd runs"),
    ],
)
def test_a_hint_names_the_port_the_user_and_the_key(target: SshTarget, said: str, way_out: str, tmp_path: Path) -> None:
    assert way_out in SshAgent("gpu3", target, "yard", tmp_path).explain(255, said)
