"""Many tasks in one job: arrays, lines of a file, retries, limits on failures."""

from __future__ import annotations

from tests.yards import TemporaryYard


def test_an_array_never_runs_more_than_its_limit_and_names_its_place(yard: TemporaryYard) -> None:
    line = (
        'touch "run/$SLURM_ARRAY_TASK_ID"; ls run | wc -l; sleep 0.05; rm "run/$SLURM_ARRAY_TASK_ID";'
        ' echo "$SLURM_ARRAY_TASK_ID $SLURM_ARRAY_TASK_COUNT $SLURM_ARRAY_TASK_MIN $SLURM_ARRAY_TASK_MAX $SLURM_JOB_ID"'
    )
    (yard.work / "run").mkdir()
    yard.ok("run", "-a", "0-99%10", "--cpus", "0.01", "--", line)
    lines = [entry.partition("| ")[2] for entry in yard.logs().splitlines()]
    at_once = [int(entry) for entry in lines if " " not in entry]
    assert len(at_once) == 100
    assert 2 <= max(at_once) <= 10
    number = yard.job()["number"]
    assert sorted(entry for entry in lines if " " in entry) == sorted(f"{i} 100 0 99 {number}" for i in range(100))


def test_array_ids_are_the_tasks_labels(yard: TemporaryYard) -> None:
    yard.ok("run", "-a", "3,7-11:2", "--cpus", "0.1", "--", "echo $SLURM_ARRAY_TASK_ID of $SLURM_ARRAY_TASK_COUNT")
    assert sorted(yard.logs().splitlines()) == sorted(f"{i}| {i} of 4" for i in (3, 7, 9, 11))
    assert yard.logs("last", "--task", "9") == "9 of 4\n"


def test_each_line_of_a_file_is_a_task(yard: TemporaryYard) -> None:
    file = yard.write("names.txt", "Ada\nGrace Hopper\n$(reboot) 'x'\n")
    yard.ok("run", "--each-line", file, "--cpus", "0.1", "--", 'echo {} and "$YARD_LINE"')
    assert sorted(yard.logs().splitlines()) == [
        "0| Ada and Ada",
        "1| Grace Hopper and Grace Hopper",
        "2| $(reboot) 'x' and $(reboot) 'x'",
    ]
    yard.ok("run", "--each-line", file, "--cpus", "0.1", "--", "echo", "<{}>")
    assert "1| <Grace Hopper>" in yard.logs().splitlines()


def test_values_after_the_command_reach_their_tasks_as_data(yard: TemporaryYard) -> None:
    values = (":::", "x/a b.c", "$(reboot)", ":::", "`id`", "--sweep")
    done = yard.ok("run", "--cpus", "0.1", "--cat", 'echo {#} {1/.} "{2}" {%} | cut -d" " -f 1-4', *values)
    assert [line.rstrip("1234") for line in done.out.splitlines()] == [
        "1 a b `id`", "2 a b --sweep", "3 $(reboot) `id` ", "4 $(reboot) --sweep ",
    ]  # fmt: skip
    done = yard.ok("run", "--cpus", "0.1", "--cat", "echo", "{%}:{}", *values[:3])
    assert done.out.splitlines()[0].endswith(":x/a b.c")
    broken = (":::", "a\n$(reboot)\n", ":::", "\n")
    assert (
        yard.ok("run", "--cat", "printf '[%s]' {} {1/} && touch {2}", *broken).out
        == "[a\n$(reboot)\n][\n][a\n$(reboot)\n]"
    )
    assert (yard.work / "\n").exists()


def test_a_failed_task_is_tried_again_as_often_as_asked(yard: TemporaryYard) -> None:
    line = 'echo "try $YARD_ATTEMPT"; [ "$YARD_ATTEMPT" -ge 3 ]'
    yard.ok("run", "--retries", "2", "--retry-delay", "0", "--", line)
    assert yard.tasks()[0]["attempt"] == 3
    assert yard.logs() == "try 3\n"
    assert [yard.logs("last", "--attempt", str(n)) for n in (1, 2, 3)] == ["try 1\n", "try 2\n", "try 3\n"]
    assert yard.run("run", "--retries", "1", "--", line).code == 1
    assert yard.tasks()[0]["attempt"] == 2


def test_one_failure_leaves_the_rest_of_an_array_alone(yard: TemporaryYard) -> None:
    done = yard.run(
        "run", "-a", "0-4", "--cpus", "0.1", "--", "[ $SLURM_ARRAY_TASK_ID != 1 ] || { echo no >&2; exit 5; }"
    )
    assert done.code == 1
    assert "4 succeeded, 1 failed of 5" in done.err
    assert "first failure: task 1" in done.err
    assert "    no" in done.err


def test_max_fails_stops_the_job(yard: TemporaryYard) -> None:
    done = yard.run("run", "-a", "0-99%1", "--cpus", "0.1", "--max-fails", "2", "--", "false")
    assert done.code == 1
    job = yard.job()
    assert job["counts"]["failed"] == 3
    assert job["counts"]["cancelled"] == 97
    assert "--max-fails: 3 tasks failed, and at most 2 may" in done.err


def test_a_task_that_takes_too_long_is_ended(yard: TemporaryYard) -> None:
    done = yard.run("run", "-t", "0.3s", "--", "sleep", "600")
    assert done.code == 1
    assert yard.job()["reason"] == "Timeout"
    assert "Timeout" in done.err


def test_groups_have_their_own_counts_and_parallelism(yard: TemporaryYard) -> None:
    text = """
        name: kinds
        command: echo "$REPLICATED_JOB_NAME $JOB_INDEX.$JOB_COMPLETION_INDEX $JOB_GLOBAL_INDEX of $GLOBAL_REPLICAS"
        resources: {cpus: 0.05}
        groups:
          b: {count: 2, completions: 2, parallelism: 1}
          a: {count: 1}
    """
    yard.ok("run", yard.write("kinds.yaml", text))
    assert sorted(yard.logs().splitlines()) == [
        "a/0| a 0.0 0 of 3",
        "b/0.0| b 0.0 1 of 3",
        "b/0.1| b 0.1 1 of 3",
        "b/1.0| b 1.0 2 of 3",
        "b/1.1| b 1.1 2 of 3",
    ]
    assert yard.logs("last", "--task", "b/1.0") == "b 1.0 2 of 3\n"
