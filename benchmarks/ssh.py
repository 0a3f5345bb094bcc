"""How soon are 200 lines done on three machines? `yard run` against GNU parallel over SSH, at equal slots.

The machines are those of the tests: three sshds, each in namespaces of its own on this computer, so that all
contestants share its cores. A machine is logged in to before the clock starts, by both: parallel through a
ControlMaster of its own configuration, which it is given because it is several times slower without.
Also: the whole batch with a tree of 20 MB sent along and 200 results brought home, and a single task on a warm yard.
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

import record
from contestants import timed
from temporary_yard import Yard, check, temporary_yard

sys.path.insert(0, str(record.REPOSITORY))
from tests.hosts import Host, Hosts, Unsupported

from jobyard.client.address import Address
from jobyard.client.api import YardClient
from jobyard.manifests.command import spec_from_command
from jobyard.manifests.context import SubmitContext
from jobyard.manifests.overrides import Overrides
from jobyard.model.job import State
from jobyard.settings import ClientKnobs, socket_path

LINES = 200
BARS = {"parallel": 5.0, "tree": 1.0, "warm": 1.0}
BARS_SECONDS = {"tree": 8.0, "warm": 0.1}
TREE_FILES, TREE_FILE_BYTES = 200, 100_000


def main() -> None:
    options = parse_arguments()
    if os.getuid() != 0:
        sys.exit("The machines of this benchmark are network namespaces: run it as root.")
    try:
        with Hosts(3) as hosts, ExitStack() as stack:
            figures = measure(hosts, options.slots, options.rounds, stack)
    except Unsupported as error:
        sys.exit(str(error))
    seconds = {name: median(each) for name, each in figures.items()}
    ratios = {"parallel": seconds["parallel"] / seconds["yard"]}
    # A task on a machine cannot end before the link has carried it there and its end back.
    ratios |= {"tree": BARS_SECONDS["tree"] / seconds["tree"]}
    ratios |= {"warm": (BARS_SECONDS["warm"] + seconds["round trip"]) / seconds["warm"]}
    if options.json:
        size = {"lines": LINES, "slots": options.slots, "bar_seconds": BARS_SECONDS}
        print(record.line("ssh", ratios=ratios, bars=BARS, figures=figures, **size))
    else:
        for name, each in seconds.items():
            against = f"   yard is {ratios[name]:.2f} x this bar ({BARS[name]})" if name in ratios else ""
            print(f"{name:<12} {each:7.3f} s{against}")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--slots", type=int, default=2, help="tasks at once on each machine (default: 2)")
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds (default: 5)")
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    return parser.parse_args()


def measure(hosts: Hosts, slots: int, rounds: int, stack: ExitStack) -> dict[str, list[float]]:
    figures: dict[str, list[float]] = {name: [] for name in ("yard", "parallel", "tree", "warm", "round trip")}
    yard = stack.enter_context(a_yard_with(hosts))
    cpus = f"{len(os.sched_getaffinity(0)) / slots:.3f}"  # of each task, so that `slots` fit at once
    batch = yard.directory / "batch"
    batch.write_text("".join(f"echo {number}\n" for number in range(LINES)))
    parallel = Parallel(hosts, slots, stack)
    for number in range(rounds):
        figures["yard"].append(timed(yard.run, "run", "--no-copy", "--on", "ssh", "--cpus", cpus, str(batch)))
        figures["parallel"].append(parallel.seconds(batch))
        figures["tree"].append(with_a_tree(yard, cpus, number))
        figures["round trip"].append(round_trip(hosts[0]))
        figures["warm"].append(a_warm_task(yard))
        print(f"round {number + 1}: " + ", ".join(f"{n} {e[-1]:.3f} s" for n, e in figures.items()), file=sys.stderr)
    return figures


@contextmanager
def a_yard_with(hosts: Hosts) -> Iterator[Yard]:
    """Its server is up and the machines are connected, as on any but the first call."""
    with temporary_yard() as yard:
        yard.env["YARD_SSH_CONFIG"] = str(hosts.config_file)
        yard.run("nodes", "add", *(host.name for host in hosts))
        for host in hosts:
            yard.run("run", "--no-copy", "--on", host.name, "--", "true")
        yield yard


class Parallel:
    """All three machines, `slots` jobs each, output captured apart; every line goes through a master that is up."""

    def __init__(self, hosts: Hosts, slots: int, stack: ExitStack) -> None:
        subprocess.run([record.REPOSITORY / "tools/need", "parallel", "parallel"], check=True)
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="jyp-", dir="/tmp")))
        config = home / "config"
        config.write_text(
            f"Host *\n  ControlMaster auto\n  ControlPath {home}/%C\n  ControlPersist 600\n"
            f"{hosts.config_file.read_text()}"
        )
        self._ssh = f"ssh -F {config}"
        logins = ",".join(f"{slots}/{self._ssh} {host.name}" for host in hosts)
        self._command = ["parallel", "--will-cite", "--sshlogin", logins]
        self._env = {
            **os.environ,
            "SHELL": shutil.which("bash") or "/bin/bash",
            "PARALLEL_HOME": str(home / "parallel"),
        }
        (home / "parallel").mkdir()
        self._output = home / "out"
        for host in hosts:
            subprocess.run(["ssh", "-F", str(config), host.name, "true"], check=True)
            stack.callback(
                subprocess.run, ["ssh", "-F", str(config), "-O", "exit", host.name], capture_output=True, check=False
            )

    def seconds(self, batch: Path) -> float:
        spent = timed(lambda: check(self._command, env=self._env, stdin=batch, stdout=self._output))
        assert len(self._output.read_text().splitlines()) == LINES
        return spent


def round_trip(host: Host) -> float:
    """There and back over the bare link: how long a TCP connection takes to be made."""

    def connect() -> None:
        socket.create_connection((host.address, host.port)).close()

    return min(timed(connect) for _ in range(5))


def with_a_tree(yard: Yard, cpus: str, number: int) -> float:
    """A tree that no machine has yet, to all of them, and a small result of each task back: from prompt to prompt."""
    work = yard.directory / f"work{number}"
    work.mkdir()
    for each in range(TREE_FILES):
        (work / f"{each}.bin").write_bytes(os.urandom(TREE_FILE_BYTES))
    (work / "batch").write_text("".join(f"echo {line} > result\n" for line in range(LINES)))
    words = [yard.command, "run", "--on", "ssh", "--cpus", cpus, "batch"]
    spent = timed(lambda: check(words, env=yard.env, cwd=work))
    assert len(list((work / "job_results").glob("*/*/result"))) == LINES
    return spent


def a_warm_task(yard: Yard) -> float:
    """From the server's accepting it to a client's hearing of its end, which is then on disk.

    Not by the job's own `finished_at`: that is when the word came in, before anything was written.
    """
    client = YardClient(Address(socket=str(socket_path(Path(yard.env["YARD_DIR"])))), ClientKnobs())
    asked = Overrides(on="gpu1", no_copy=True)
    spec = spec_from_command(["true"], asked, SubmitContext(str(yard.directory), user="benchmark"))
    times = []
    for _ in range(10):
        for view in client.watch(client.submit(spec).id):
            if view.state.is_final:
                times.append(time.time() - view.submitted_at)
                assert view.state is State.SUCCEEDED
    return round(median(times), 4)


if __name__ == "__main__":
    main()
