"""What of the environment around it does an agent keep, and what do its tasks get?"""

from __future__ import annotations

from jobyard.agent_protocol.inherited import for_agent, for_tasks

SERVER = {
    "PATH": "/bin",
    "LC_ALL": "C",
    "JOBYARD_FAKE_GPU_DIR": "/fake",
    "JOBYARD_FAULTS": "/faults",
    "DOCKER_HOST": "unix:///run/other.sock",
    "HTTPS_PROXY": "http://me:s3cret@proxy",
    "YARD_DB": "postgresql://me:s3cret@db",
    "AWS_SECRET_ACCESS_KEY": "s3cret",
    "JOBYARD_GENAI_TOKEN": "s3cret",
}


def test_the_agent_beside_a_server_gets_logins_words_and_those_of_container_clients() -> None:
    assert for_agent(SERVER).keys() == SERVER.keys() - {"YARD_DB", "AWS_SECRET_ACCESS_KEY", "JOBYARD_GENAI_TOKEN"} | {
        "JOBYARD_PRIVATE"
    }


def test_its_tasks_get_the_logins_words_alone() -> None:
    assert for_tasks(for_agent(SERVER)).keys() == {"PATH", "LC_ALL", "JOBYARD_FAKE_GPU_DIR"}


def test_of_a_login_session_nothing_is_taken() -> None:
    login = {"PATH": "/bin", "DOCKER_HOST": "unix:///run/other.sock", "MODULEPATH": "/modules"}
    assert for_tasks(login) == login
