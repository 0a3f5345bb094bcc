"""`yard port-forward`: reach a port of a task from here."""

from __future__ import annotations

import click

from jobyard.cli.local_ports import Forward
from jobyard.cli.machines.forwarding import forward
from jobyard.cli.output.text import say
from jobyard.cli.reaching import MachineTarget, finish, identity_flags, pods_module, target_of
from jobyard.cli.session import Session, with_session
from jobyard.errors import UserError
from jobyard.kubernetes.kubeconfig import ClusterWords
from jobyard.model.units import whole_number


@click.command("port-forward")
@with_session
@click.argument("job", metavar="JOB[/TASK]")
@click.argument("ports", nargs=-1, required=True, metavar="[LOCAL:]REMOTE...")
@identity_flags
def command(session: Session, job: str, ports: tuple[str, ...], identity: ClusterWords) -> int:
    """Listen on loopback and pass connections on to a port of a task, until Ctrl-C or the task's end.

    \b
      yard port-forward last 6006        its TensorBoard here
      yard port-forward train/0 8080:80  as port 8080 here
    """
    wanted = [_port(text) for text in ports]
    target = target_of(session, job, identity)
    if isinstance(target, MachineTarget):
        return finish(forward(target, wanted, say))
    return finish(pods_module("forwarding").forward(target, wanted, say))


def _port(text: str) -> Forward:
    """`REMOTE` is the same here; `:REMOTE` any that is free."""
    local, colon, remote = text.rpartition(":")
    if not colon:
        local = remote
    here, there = whole_number(local or "0"), whole_number(remote)
    if here is None or there is None or here > 65535 or not 1 <= there <= 65535:
        raise UserError(f"port {text!r}: write REMOTE or LOCAL:REMOTE, as in 6006 or 8080:80")
    return Forward(here, there)
