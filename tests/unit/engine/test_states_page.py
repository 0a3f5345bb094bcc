from __future__ import annotations

import runpy
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_the_page_of_states_is_up_to_date() -> None:
    printed = runpy.run_path(str(ROOT / "tools" / "print_states.py"))["page"]()
    written = (ROOT / "docs" / "states.md").read_text()
    assert written == printed, "run: python tools/print_states.py > docs/states.md"
