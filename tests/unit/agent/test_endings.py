"""Is it told why a task ended, as far as anybody can know?"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest
from tests.unit.agent.agent_process import SOURCE, AgentProcess, Client
from tests.unit.agent.conftest import MakeAgent

from jobyard.agent.attempts.attempt import Attempt, Slot
from jobyard.agent.attempts.endings import Endings
from jobyard.agent.attempts.outbox import Outbox
from jobyard.agent.attempts.spools import Spools
from jobyard.agent.attempts.stop_requests import StopRequests
from jobyard.agent.devices.gpus import Device, NoGpus
from jobyard.agent.system import kernel_kills, probe
from jobyard.agent.system.kernel_kills import KernelKills
from jobyard.agent.system.timers import Timers
from jobyard.agent_protocol import records
from jobyard.agent_protocol.endings import is_preempted, said_of_gpu_memory
from jobyard.agent_protocol.progress_reducer import ProgressReducer
from jobyard.agent_protocol.records import Ending
from jobyard.agent_protocol.stop_request import StopRequest

TORCH = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB"
)


@pytest.mark.parametrize(
    "text",
    [
        TORCH,
        "RuntimeError: CUDA error: out of memory",
        "RuntimeError: CUDA driver error: CUDA_ERROR_OUT_OF_MEMORY",
        "cudaErrorMemoryAllocation: out of memory",
        "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "OOM when allocating tensor with shape[64,1024] and type float on /GPU:0",
        "XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8589934592 bytes.",
    ],
)
@pytest.mark.parametrize("stream", ["out", "err"])
def test_a_full_gpu_is_known_from_what_the_task_said(tmp_path: Path, text: str, stream: str) -> None:
    files = records.paths(str(tmp_path), "j.0.1")
    Path(files.directory).mkdir(parents=True)
    Path(getattr(files, stream)).write_text("x" * 100_000 + f"\n{text}\nand more\n")
    assert said_of_gpu_memory(files) == text


@pytest.mark.parametrize("text", ["MemoryError", "RESOURCE_EXHAUSTED: quota", TORCH + "\n" + "x" * 70_000, ""])
def test_other_words_are_not_taken_for_it(tmp_path: Path, text: str) -> None:
    files = records.paths(str(tmp_path), "j.0.1")
    Path(files.directory).mkdir(parents=True)
    Path(files.err).write_text(text)
    assert said_of_gpu_memory(files) == ""


class OneGpu(NoGpus):
    def devices(self) -> list[Device]:
        return [Device(0, "GPU", 81920, "u", False)]


def test_the_message_has_the_figure_of_the_device(tmp_path: Path) -> None:
    timers = Timers()
    attempts: dict[str, Attempt] = {}
    spools = Spools(timers, attempts, Outbox(timers), str(tmp_path))
    stop_requests = StopRequests(timers, attempts, str(tmp_path), lambda attempts, grace: None)
    attempt = Attempt("j.0.1", Slot("s", "j", {"devices": {"0": 1000}}))
    attempt.seen_on_gpu(70000, 0)
    files = records.paths(str(tmp_path), "j.0.1")
    Path(files.directory).mkdir(parents=True)
    Path(files.err).write_text(TORCH)
    ended = Endings(str(tmp_path), OneGpu(), spools, stop_requests).describe(attempt, an_end(exit_code=1))
    assert ended["reason"] == "OutOfGpuMemory"
    assert ended["message"] == f"ran out of GPU memory (it was seen with 70000 of 81920 MiB on GPU 0): {TORCH}"
    assert ended["peak_gpu_memory_mib"] == 70000


def an_end(exit_code: int | None = None, number: int | None = None, reason: str | None = None) -> Ending:
    return Ending(5.0, exit_code, number, reason)


def test_only_tasks_with_devices_run_out_of_their_memory(make_agent: MakeAgent) -> None:
    agent = make_agent().start("--fake-gpus", "1x10GiB")
    server = agent.connect()
    item = {"shell": f"echo '{TORCH}' >&2; exit 1"}
    server.launch("s", {"id": "j.0.1", **item}, devices={"0": 1000})
    server.launch("t", {"id": "j.1.1", **item})
    server.launch("u", {"id": "j.2.1", "shell": f"echo '{TORCH}' >&2"}, devices={"0": 1000})
    assert server.finished("j.0.1")["reason"] == "OutOfGpuMemory"
    assert TORCH in server.finished("j.0.1")["message"]
    assert "reason" not in server.finished("j.1.1")
    assert "reason" not in server.finished("j.2.1")


def test_what_the_task_wrote_itself_is_the_message(make_agent: MakeAgent) -> None:
    agent = make_agent(PYTHONPATH=str(SOURCE)).start("--fake-gpus", "1x10GiB")
    server = agent.connect()
    hold = f"{sys.executable} -m jobyard.agent.devices.fake_gpu hold 20GiB"
    server.launch(
        "s", {"id": "j.0.1", "shell": f"{hold} || (echo too large > $YARD_ERROR_FILE; exit 1)"}, devices={"0": 1}
    )
    outcome = server.finished("j.0.1")
    assert (outcome["reason"], outcome["message"]) == ("OutOfGpuMemory", "too large")


def test_a_kill_that_nobody_asked_for_is_a_signal_unless_the_kernel_counts_it(server: Client) -> None:
    (outcome,) = server.run({"id": "j.0.1", "shell": "kill -9 $$"})
    assert outcome["signal"] == 9
    assert outcome.get("reason") in (None, "OutOfMemory")  # somebody else on this machine may run out just now


def test_the_kernels_count_tells_since_when(tmp_path: Path) -> None:
    one, two = tmp_path / "memory.events", tmp_path / "memory.oom_control"
    one.write_text("low 0\noom 4\noom_kill 2\noom_group_kill 0\n")
    two.write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 0\n")
    kills = KernelKills([str(one), str(two), str(tmp_path / "gone")])
    kills.remember()
    assert not kills.has_killed()
    two.write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 1\n")
    assert kills.has_killed()
    assert not kills.has_killed()


def test_the_innermost_cgroup_that_counts_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outer, inner = tmp_path / "outer", tmp_path / "outer" / "inner"
    inner.mkdir(parents=True)
    monkeypatch.setattr(probe, "cgroup_directories", lambda controller: [str(outer), str(inner)])
    assert kernel_kills.counters() == ["/proc/vmstat"]
    (outer / "memory.events").write_text("oom_kill 0\n")
    (inner / "memory.events").write_text("oom_kill 0\n")
    (outer / "memory.oom_control").write_text("oom_kill 0\n")
    (inner / "memory.oom_control").write_text("under_oom 0\n")  # an old kernel does not count
    assert kernel_kills.counters() == [str(inner / "memory.events"), str(outer / "memory.oom_control")]


@pytest.mark.parametrize("end", ["kill -9 $$", "exit 137"])
def test_what_a_lane_says_of_the_kernel_is_told(agent: AgentProcess, end: str) -> None:
    path = Path(agent.files("j.0.1").record)
    path.parent.mkdir(parents=True)
    code, number = ("137", "-") if end == "exit 137" else ("-", "9")
    path.write_text(f"claim boot 1 1 - -\nstart 1 1 5.0\nend 6.0 {code} {number} 100 OutOfMemory\n")
    outcome = agent.connect("j.0.1").finished("j.0.1")
    assert outcome["reason"] == "OutOfMemory"
    assert outcome["message"] == "killed by the kernel because memory ran out"


ASKED = StopRequest(0.0, 600.0, 10.0)


@pytest.mark.parametrize("reason", ["Timeout", "NodeLost", "Unknown"])
def test_a_task_that_was_only_asked_and_ended_otherwise_is_not_preempted(reason: str) -> None:
    assert not is_preempted(an_end(number=signal.SIGTERM, reason=reason), None, ASKED)


def test_a_lost_status_is_made_up_for_by_last_words() -> None:
    reducer = ProgressReducer()
    reducer.feed(b'{"t":"yield","at":1,"done":2}\n')
    assert is_preempted(an_end(reason="Unknown"), reducer, ASKED)


@pytest.mark.parametrize(("signalled_at", "expected"), [(4.0, True), (6.0, False), (0.0, False)])
def test_only_what_ended_after_our_signal_ended_by_it(signalled_at: float, expected: bool) -> None:
    request = StopRequest(0.0, 1.0, 10.0)
    request.signalled_at = signalled_at
    assert is_preempted(an_end(exit_code=1), None, request) is expected
    assert is_preempted(an_end(number=signal.SIGTERM), None, request) is expected
    assert is_preempted(an_end(exit_code=85), None, request)


COUNTS = "import os, pathlib, signal; pathlib.Path({path!r}).write_text('oom_kill 1\\n'); {end}"


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), signal.SIGKILL)", "os._exit(137)", "os._exit(1)"])
@pytest.mark.parametrize("rises", [True, False])
def test_a_lane_asks_the_kernels_count_about_what_was_killed(
    make_agent: MakeAgent, tmp_path: Path, end: str, rises: bool
) -> None:
    """The counter is a file that the task itself changes, in the place of the kernel's."""
    count = tmp_path / "memory.events"
    count.write_text("oom_kill 0\n")
    lying = tmp_path / "lying"
    lying.mkdir()
    (lying / "sitecustomize.py").write_text(
        f"import jobyard.agent.system.kernel_kills as kills\nkills.counters = lambda: [{str(count)!r}]\n"
    )
    agent = make_agent(PYTHONPATH=f"{SOURCE}:{lying}").start()
    code = COUNTS.format(path=str(count if rises else tmp_path / "other"), end=end)
    item = {"id": "j.0.1", "argv": [sys.executable, "-S", "-c", code]}
    outcome = agent.connect().run(item)[0]
    assert outcome.get("reason") == ("OutOfMemory" if rises and end != "os._exit(1)" else None)
    assert agent.ending("j.0.1").reason == outcome.get("reason")
