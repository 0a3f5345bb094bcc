"""Asks the process that trains to stop, in its second epoch, the way that the test chose."""

import os
import signal
from pathlib import Path


def ask_in_second_epoch(epoch: int) -> None:
    how = os.environ.get("ASK")
    if epoch == 1 and how == "file":
        Path(os.environ["YARD_STOP_FILE"]).touch()
    elif epoch == 1 and how == "signal":
        os.kill(os.getpid(), signal.SIGTERM)
