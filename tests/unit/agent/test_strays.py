"""Does nothing of a task outlive it, however it hid?"""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from tests.unit.agent.agent_process import AgentProcess, Client
from tests.waiting import until

from jobyard.agent.system import processes

DAEMON = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        {clean}
        {deaf}
        {beget}
        with open("pid.tmp", "w") as file:
            file.write(str(os.getpid()))
        os.rename("pid.tmp", "pid")
        time.sleep(1000)
    os._exit(0)
while not os.path.exists("pid"):
    time.sleep(0.01)
{then}
"""


def daemon(agent: AgentProcess, *, clean: str = "pass", deaf: str = "pass", beget: str = "pass", then: str = "") -> str:
    path = agent.work / "daemon.py"
    path.write_text(DAEMON.format(clean=clean, deaf=deaf, beget=beget, then=then))
    return f"{sys.executable} {path}"


def pid_of_daemon(agent: AgentProcess) -> int:
    path = agent.work / "pid"
    until(path.exists)
    return int(path.read_text())


def test_a_daemon_ends_with_its_task(agent: AgentProcess, server: Client) -> None:
    (outcome,) = server.run({"id": "j.0.1", "shell": daemon(agent)})
    assert outcome["exit_code"] == 0
    assert processes.start_time(pid_of_daemon(agent)) == 0


def test_a_daemon_that_does_not_listen_is_killed_with_all_its_children(agent: AgentProcess, server: Client) -> None:
    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    beget = "os.fork() or (os.setsid(), open('child', 'w').write(str(os.getpid())), time.sleep(1000))"
    (outcome,) = server.run({"id": "j.0.1", "shell": daemon(agent, deaf=deaf, beget=beget), "grace": 0.1})
    assert outcome["exit_code"] == 0
    assert processes.start_time(pid_of_daemon(agent)) == 0
    assert processes.start_time(int((agent.work / "child").read_text())) == 0


def test_a_daemon_ends_when_its_task_is_stopped(agent: AgentProcess, server: Client) -> None:
    server.launch("s", {"id": "j.0.1", "shell": daemon(agent, then="time.sleep(1000)")})
    pid = pid_of_daemon(agent)
    server.send(op="stop", ids=["j.0.1"], grace=5)
    server.finished("j.0.1")
    assert processes.start_time(pid) == 0


def test_a_daemon_of_a_task_whose_lane_was_killed_ends_with_it_too(agent: AgentProcess, server: Client) -> None:
    server.launch("s", {"id": "j.0.1", "shell": daemon(agent, then="time.sleep(1000)"), "grace": 1})
    pid = pid_of_daemon(agent)
    claim, start = agent.claim("j.0.1"), agent.start_of("j.0.1")
    processes.send(claim.lane_pid, signal.SIGKILL)
    until(lambda: not processes.is_alive(claim.lane_pid, claim.lane_start_time))
    processes.send(start.pid, signal.SIGKILL)
    assert server.finished("j.0.1")["reason"] == "Unknown"
    until(lambda: processes.start_time(pid) == 0)


def test_what_a_long_task_leaves_dead_is_buried_meanwhile(agent: AgentProcess, server: Client) -> None:
    """Orphans become children of the lane: as zombies they would fill the table of processes."""
    server.launch("s", {"id": "j.0.1", "shell": "(setsid sleep 0 &) ; (setsid sleep 0 &) ; touch done; sleep 1000"})
    until((agent.work / "done").exists)
    lane = agent.claim("j.0.1").lane_pid
    until(lambda: [pid for pid in all_pids() if parent_of(pid) == lane] == [agent.start_of("j.0.1").pid])


def all_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def parent_of(pid: int) -> int:
    found = processes.inspect(pid)
    return found.parent if found else 0


def test_the_next_task_of_the_lane_is_not_taken_for_a_stray(agent: AgentProcess, server: Client) -> None:
    outcomes = server.run(
        {"id": "j.0.1", "shell": daemon(agent)}, {"id": "j.1.1", "shell": "echo fine"}, {"id": "j.2.1", "shell": "true"}
    )
    assert [outcome["exit_code"] for outcome in outcomes] == [0, 0, 0]
    assert agent.output("j.1.1") == "fine\n"


def as_a_lane(script: str) -> str:
    """What this script says, which plays a lane: in a process of its own, for here are children of others' fixtures."""
    begin = "import os, signal, time\nfrom jobyard.agent.system import processes, strays\n"
    done = subprocess.run([sys.executable, "-c", begin + script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_who_cannot_be_ended_is_told() -> None:
    """As a process of another user, or one that hangs in the kernel."""
    told = as_a_lane("""
strays.LINGER_SECONDS = 0.01
processes.send = lambda pid, number: None
pid = os.posix_spawn("/bin/sleep", ["sleep", "1000"], os.environ, setsid=True)
try:
    told = strays.see_off(pid, 0.0)
finally:
    os.kill(pid, signal.SIGKILL)
print(told.replace(str(pid), "PID"))
""")
    assert told == "it left processes behind that could not be ended: sleep (pid PID)\n"


def test_a_task_that_left_nothing_costs_no_look_at_other_processes() -> None:
    said = as_a_lane("""
strays._left = lambda *words: print("looked")
pid = os.posix_spawn("/bin/true", ["true"], os.environ, setsid=True)
strays.await_child(pid)
time.sleep = lambda seconds: print("waited")
print(strays.see_off(pid, 10.0))
""")
    assert said == "\n"


def test_who_ends_while_we_look_closer_is_buried_too() -> None:
    """A lane with nothing to do would keep it as a zombie, which still has its pid."""
    said = as_a_lane("""
pid = os.posix_spawn("/bin/sleep", ["sleep", "1000"], os.environ, setsid=True)

def left(*words):
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    return []

strays._left = left
print(strays.see_off(pid, 10.0), processes.start_time(pid))
""")
    assert said == " 0\n"


def test_who_forks_and_ends_all_the_time_is_not_taken_for_gone() -> None:
    said = as_a_lane("""
strays.LINGER_SECONDS = 0.1
strays._left = lambda *words: []
strays.become_subreaper()
pid = os.posix_spawn("/bin/sleep", ["sleep", "1000"], os.environ, setsid=True)
print(strays.see_off(pid, 0.0))
os.kill(pid, signal.SIGKILL)
""")
    assert said == "it left processes behind that fork faster than they can be ended\n"
