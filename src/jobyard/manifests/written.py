"""Written words: what did the user call the field that a refusal names, and where does it stand?

The server knows neither flags nor files: it refuses `SubmitJob.spec.groups[0].command.argv[2]`, or `--after` though a
manifest said so. Only asked for a sentence that is printed, so that no submit pays for it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from jobyard.errors import UserError
from jobyard.manifests.context import SubmitContext
from jobyard.manifests.declarations import JobField, spelled
from jobyard.manifests.files import lines_of, read_text
from jobyard.manifests.job_fields import FLAGGED, RESOURCES, TOP_LEVEL, TRAINING
from jobyard.manifests.load import is_document
from jobyard.manifests.overrides import Overrides
from jobyard.manifests.parts import Part
from jobyard.manifests.sbatch import sets
from jobyard.model.job import JobSpec

_SPEC = "SubmitJob.spec."  # how a refused place begins
_KEYS: dict[str, tuple[JobField, str]] = {
    (field.option.name if field.option else "") or key: (field, f"{inside}{key}")
    for table, inside in (*((table, "") for table in TOP_LEVEL), (RESOURCES, "resources."), (TRAINING, "training."))
    for key, field in table.items()
}
_AT = {field.at: (spelled(name) if field.option else key, key) for name, (field, key) in _KEYS.items() if field.at}
# Of a job or a group: what stands at which place of a spec, how it is called, and which key of a manifest it has.
_WORDS = (
    (r"name", "the job's name", "name"),
    (r"env\.(.*)", "variable {0}", "env.{0}"),
    (r"env", "the variables", "env"),
    (r"submitter\.inherited_env\.(.*)", "variable {0} of this shell", ""),
    (r"workdir", "the working directory", "workdir"),
    (r"command\.argv\[(\d+)\]", "word {1} of the command", "command[{0}]"),
    (r"command\.(?:argv|shell)", "the command", "command"),
    (r"command\.lines", "the file of commands", ""),
    (r"command\.inputs.*", "the values of its tasks", ""),
    (r"command\.script\..*", "the script", ""),
    (r"array\.pieces.*", "--array", "array"),
    (r"staging\.copy_forward.*", "--copy-forward", "copy_forward"),
    (r"staging\.copy_back.*", "--copy-backwards", "copy_backwards"),
    (r"staging\.output", "--output", "output"),
    (r"staging\.error", "--error", "error"),
)


@dataclass(frozen=True)
class Written:
    """A job as it was written: the flags, and the file if there is one."""

    overrides: Overrides
    file: str = ""
    context: SubmitContext | None = None

    def sentence(self, refusal: UserError, spec: JobSpec) -> str:
        """The refusal in words of the user, with file and line where a file says what it names."""
        if refusal.field.startswith(_SPEC):
            return self._about_place(refusal.field.removeprefix(_SPEC), refusal.sentence, spec)
        name = refusal.field.removeprefix("--").replace("-", "_")
        if refusal.field.startswith("--") and name in FLAGGED and name not in self.overrides:
            return self._about_flag(refusal, name)
        return str(refusal)

    def _about_place(self, place: str, sentence: str, spec: JobSpec) -> str:
        called, key = _called(place, spec)
        document = self._content()
        if isinstance(document, Part) and key and (found := _part(document, key)):
            return str(found.error(key, sentence))
        return f"{called}: {sentence}"

    def _about_flag(self, refusal: UserError, name: str) -> str:
        content = self._content()
        if isinstance(content, Part):
            key = _KEYS[name][1] if name in _KEYS else ""
            part = _part(content, key) if key else None
            return str(part.error(key, refusal.sentence)) if part else str(refusal)
        for number, line in enumerate(lines_of(content), start=1):
            if ("#YARD" in line and re.search(rf"\s{refusal.field}(?:[\s=]|$)", line)) or sets(line, name):
                return f"{self.file}: line {number}: {refusal}"
        return str(refusal)

    def _content(self) -> Part | str:
        """The first document of the file, or its text; nothing of a file that cannot be read twice, as a pipe."""
        if not self.file or self.context is None or self.file.startswith("/dev/"):
            return ""
        try:
            text = read_text(self.file, self.context)
            if not is_document(Path(self.file), text):
                return text
            from jobyard.manifests.documents import parse_documents  # on first use, as in `load`

            return parse_documents(text, self.file)[0]
        except UserError:
            return ""


def _called(place: str, spec: JobSpec) -> tuple[str, str]:
    """What the field at this place of a spec is called, and the key that it has in a manifest."""
    if match := re.fullmatch(r"groups\[(\d+)\]\.(.*)", place):
        called, key = _called(match[2], spec)
        group = spec.groups[int(match[1])].name
        return (f"{called} of group {group}", f"groups.{group}.{key}" if key else "") if group else (called, key)
    for pattern, called, key in _WORDS:
        if match := re.fullmatch(pattern, place):
            first = match[1] if match.re.groups else ""
            following = str(int(first) + 1) if first.isdecimal() else ""
            return called.format(first, following), key.format(first)
    outer = re.sub(r"\[.*", "", place)
    return _AT.get(outer, (place, ""))


def _part(document: Part, key: str) -> Part | None:
    """What stands under the key; a group may have it from the top level."""
    part: Part | None = document
    for word in re.findall(r"[^.\[\]]+", key):
        if part is not None and isinstance(part.value, list) and word.isdecimal():
            part = part.value[int(word)] if int(word) < len(part.value) else None
        elif part is not None:
            part = part.get(word)
    if part is None and key.startswith("groups."):
        return _part(document, key.split(".", 2)[2])
    return part
