"""What is a cluster asked before a job is taken, and how often?"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.builders import a_job

from jobyard.errors import Unavailable, UserError
from jobyard.executors.kubernetes import admission as admission_module
from jobyard.executors.kubernetes.admission import Admission
from jobyard.executors.kubernetes.object_keys import ObjectKey
from jobyard.executors.protocol import SubmittedJob
from jobyard.kubernetes.refusals import Refused
from jobyard.model.node import ClusterConfig

Object = dict[str, Any]


class PlayedApi:
    """Says of each trial what the test wants; all rights are there."""

    namespace = "ns"

    def __init__(self, trouble: Exception | None = None) -> None:
        self.trouble = trouble
        self.trials: list[Object] = []

    async def create(self, path: str, body: Object, **query: str) -> Object:
        if "selfsubject" in path:
            return {"status": {"allowed": True, "userInfo": {}}}
        assert query == {"dryRun": "All", "fieldValidation": "Strict"}
        self.trials.append(body)
        if self.trouble:
            raise self.trouble
        return body


def build(job: SubmittedJob, key: ObjectKey, namespace: str) -> list[Object]:
    return [{"name": job.spec.name, "image": job.spec.container.image, "namespace": namespace}]


def an_admission(api: PlayedApi) -> Admission:
    async def ready() -> PlayedApi:
        return api

    link: Any = SimpleNamespace(ready=ready, account="")
    watches: Any = SimpleNamespace(has=lambda kind: True, pods_in=lambda namespace: ())
    return Admission(ClusterConfig("k", namespace="ns"), link, watches, build)


def submitted(name: str = "job", image: str = "python") -> SubmittedJob:
    return SubmittedJob("j", 1, a_job(name=name, image=image, cluster="k"))


async def test_the_same_under_another_name_is_not_asked_again() -> None:
    api = PlayedApi()
    admission = an_admission(api)
    for job in (submitted("first"), submitted("second"), submitted("third", image="ubuntu")):
        await admission.check(job)
    assert [trial["name"] for trial in api.trials] == ["first", "third"]


async def test_what_was_accepted_is_asked_again_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission_module, "ACCEPTED_SECONDS", 0.0)
    api = PlayedApi()
    admission = an_admission(api)
    for _ in range(2):
        await admission.check(submitted())
    assert len(api.trials) == 2


@pytest.mark.parametrize(
    ("trouble", "sentence"),
    [
        (Refused(422, "Invalid", "the image is no name"), "cluster k refuses the Job: .*the image is no name"),
        (Unavailable("it does not answer"), "cluster k: it does not answer"),
    ],
)
async def test_what_is_refused_is_told_in_the_clusters_words_and_asked_again(trouble: Exception, sentence: str) -> None:
    api = PlayedApi(trouble)
    admission = an_admission(api)
    for _ in range(2):
        with pytest.raises(UserError, match=sentence):
            await admission.check(submitted())
    assert len(api.trials) == 2
