"""Job file: which kind of file is this (manifest, script, batch file), and which job is it?"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from jobyard.errors import UserError
from jobyard.manifests.context import SubmitContext
from jobyard.manifests.files import lines_of, read_text
from jobyard.manifests.other_files import command_for, refuse_other_file
from jobyard.manifests.overrides import Overrides
from jobyard.model.job import JobSpec
from jobyard.quoting import joined, quoted

_STRUCTURED = frozenset({".yaml", ".yml", ".json"})
_AICHOR = re.compile(r"""^kind[ \t]*:[ \t]*["']?AIchorManifest\b""", re.MULTILINE)
_KUBERNETES = re.compile(r"^apiVersion[ \t]*:.*^kind[ \t]*:|^kind[ \t]*:.*^apiVersion[ \t]*:", re.MULTILINE | re.DOTALL)
# A native manifest without a name that says so: keys at the margin, and one that says what runs. In a list of bash
# commands they would be programs whose names end in a colon; `command : x`, with a blank, is a command of bash.
_RUNS = re.compile(r"""^["']?(?:command|groups)["']?:(?=\s|$)""", re.MULTILINE)
_AT_MARGIN = re.compile(r"""["']?[$\w-]+["']?:(?:\s|$)|[\s#}\]]|-\s|---|\.\.\.\s*$|$""")


def spec_from_file(
    path: Path,
    overrides: Overrides,
    context: SubmitContext,
    *,
    arguments: Sequence[str] = (),
    is_list: bool = False,
) -> JobSpec:
    """The job in a file, told by its content and name; flags win. Raises UserError, and then nothing was submitted.

    `kind: AIchorManifest` is one; other YAML or JSON with an `apiVersion` is a Kubernetes object, and else a native
    manifest; what begins with `#!` is a script, and only that has `arguments`; any other text is a batch file. Neither
    JSON nor a manifest needs a name that says so. With `is_list` whatever it is counts as a batch file.
    """
    text, file = read_text(path, context), str(path)
    # Imported on first use: a batch file does not pay for YAML, nor a manifest for subprocess.
    if not is_list and path.suffix.lower() not in _STRUCTURED and text.startswith("#!"):
        from jobyard.manifests.scripts import spec_from_script

        return spec_from_script(text, file, arguments, overrides, context)
    if arguments:
        raise UserError(
            f"one FILE at a time: {quoted(file)} does not begin with #! as a script does, and only a script has "
            f"arguments; to run it all the same write: yard run -- {command_for(file)} {joined(arguments)}"
        )
    if is_list:
        return _spec_from_list(text, file, overrides, context)
    if path.suffix.lower() != ".ipynb" and is_document(path, text):
        return _spec_from_document(text, file, overrides, context)
    refuse_other_file(text, file)
    return _spec_from_list(text, file, overrides, context)


def is_document(path: Path, text: str) -> bool:
    """Is it YAML or JSON, by its name or by what it says?"""
    if path.suffix.lower() in _STRUCTURED:
        return True
    return bool(_AICHOR.search(text) or _KUBERNETES.search(text)) or _is_json(text) or _is_manifest(text)


def _spec_from_list(text: str, file: str, overrides: Overrides, context: SubmitContext) -> JobSpec:
    from jobyard.manifests.batch import spec_from_batch

    return spec_from_batch(text, file, overrides, context)


def _is_manifest(text: str) -> bool:
    """Told without YAML, which would take long for a large batch file, and fail at a manifest with a mistake in it."""
    return bool(_RUNS.search(text)) and all(map(_AT_MARGIN.match, lines_of(text)))


def _is_json(text: str) -> bool:
    """A batch file may begin with a brace too: `{ ./a; ./b; }`."""
    if not text.lstrip().startswith("{"):
        return False
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _spec_from_document(text: str, file: str, overrides: Overrides, context: SubmitContext) -> JobSpec:
    from jobyard.manifests.aichor import spec_from_aichor
    from jobyard.manifests.aichor_fields import KIND
    from jobyard.manifests.documents import parse_documents
    from jobyard.manifests.native import spec_from_native

    documents = parse_documents(text, file)
    if not documents:
        raise UserError(f"{file}: it is empty; write at least a command, as in: command: echo hello")
    first = documents[0]
    kind = first.text_of("kind")
    is_aichor = kind == KIND or (first.get("spec") is not None and first.get("builder") is not None)
    if first.get("apiVersion") is not None and not is_aichor:
        from jobyard.manifests.objects import refuse_several, spec_from_object

        refuse_several(documents)
        return spec_from_object(first, overrides, context)
    if len(documents) > 1:
        raise UserError(f"{file}: line {documents[1].line}: a second document; write one job per file")
    if is_aichor:
        return spec_from_aichor(first, overrides, context)
    return spec_from_native(first, overrides, context)
