"""Which way of writing a job down is this file?"""

from __future__ import annotations

import json
import re
from pathlib import Path

from jobyard.errors import UserError
from jobyard.manifests.context import SubmitContext
from jobyard.manifests.files import read_text
from jobyard.manifests.overrides import Overrides
from jobyard.model.job import JobSpec

_STRUCTURED = frozenset({".yaml", ".yml", ".json"})
_AICHOR = re.compile(r"""^kind[ \t]*:[ \t]*["']?AIchorManifest\b""", re.MULTILINE)
_KUBERNETES = re.compile(r"^apiVersion[ \t]*:.*^kind[ \t]*:|^kind[ \t]*:.*^apiVersion[ \t]*:", re.MULTILINE | re.DOTALL)


def spec_from_file(path: Path, overrides: Overrides, context: SubmitContext) -> JobSpec:
    """The job in a file, told by its content and name; flags win. Raises UserError, and then nothing was submitted.

    `kind: AIchorManifest` is one; other YAML or JSON with an `apiVersion` is a Kubernetes object, and else a native
    manifest; any other text is a batch file; JSON needs no name that says so.
    """
    text = read_text(path, context)
    # Imported on first use: a batch file does not pay for YAML, nor a manifest for subprocess.
    if path.suffix.lower() in _STRUCTURED or _AICHOR.search(text) or _KUBERNETES.search(text) or _is_json(text):
        return _spec_from_document(text, str(path), overrides, context)
    from jobyard.manifests.batch import spec_from_batch

    return spec_from_batch(text, str(path), overrides, context)


def _is_json(text: str) -> bool:
    """A batch file may begin with a brace too: `{ ./a; ./b; }`."""
    if not text.lstrip().startswith("{"):
        return False
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _spec_from_document(text: str, file: str, overrides: Overrides, context: SubmitContext) -> JobSpec:
    from jobyard.manifests.aichor import KIND, spec_from_aichor
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
