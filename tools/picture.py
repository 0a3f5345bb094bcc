"""Draw docs/display.svg: the live display as `yard run` draws it, of a job that is made up here."""

from __future__ import annotations

import re
import time
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.text import Text

from jobyard.cli.output.live import Picture
from jobyard.model.job import State
from jobyard.wire.views import Counts, FailureView, JobView, TaskView

FAILED = TaskView(number=17, label="17", state=State.FAILED, exit_code=1)
VIEW = JobView(
    id="k3v9", number=12, name="sweep", user="ada", state=State.RUNNING, reason=None, message="", priority=0,
    submitted_at=time.time() - 74, started_at=time.time() - 74, finished_at=None,
    counts=Counts(total=1000, succeeded=618, failed=1, running=16, pending=365),
    command="python train.py", workdir=".", source="command", gang=False, eta_seconds=45,
    first_failure=FailureView(FAILED, ("  File \"train.py\", line 31, in load", "ValueError: fold 17 is empty")),
)  # fmt: skip


def main() -> None:
    console = Console(record=True, width=100, force_terminal=True, color_system="truecolor", file=StringIO())
    console.print(Text("$ yard run -a 0-999 --retries 1 -- python train.py", "bold"))
    console.print(Picture(VIEW, rate=8.4))
    svg = console.export_svg(title="yard run", unique_id="yard")
    svg = re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL)  # nobody's browser should fetch fonts for it
    Path(__file__).parent.parent.joinpath("docs/display.svg").write_text(svg)


if __name__ == "__main__":
    main()
