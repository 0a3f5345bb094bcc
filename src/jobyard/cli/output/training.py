"""Training display: how does training go (epochs, loss, ETA)? Numbers with a small plot beside them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from jobyard.cli.output.harmless import harmless
from jobyard.model.units import show_mib, show_seconds
from jobyard.wire.views import SizeView, TrainingView

LEVELS = "▁▂▃▄▅▆▇█"
GAP = "·"  # a value that is no number, in a plot
PLOT_COLUMNS = 40
BAR_COLUMNS = 20


def training_fields(training: TrainingView) -> list[tuple[str, str]]:
    """For `yard show`; what is not known has no value."""
    name = plotted_metric(training)
    values = [epoch.metrics.get(name, math.nan) for epoch in training.history]
    return [
        ("epochs", epochs_bar(training)),
        ("eta", eta_text(training)),
        ("epoch", _beside(seconds_text(training.epoch_seconds), [epoch.seconds for epoch in training.history])),
        ("step", _step_text(training)),
        (harmless(name), _beside(f"{training.metrics[name]:.4g}" if name in training.metrics else "", values)),
        ("metrics", ", ".join(f"{harmless(k)} {v:.4g}" for k, v in training.metrics.items() if k != name)),
        ("size", training.size + (f", may be {training.sizes}" if training.sizes else "")),
        ("measured", "; ".join(_size_text(size) for size in training.by_size)),
        ("GPU", _gpu_text(training)),
        ("checkpoint", _checkpoint_text(training)),
        ("stops", _stops_text(training)),
        ("estimate", _estimate_text(training)),
        ("idle GPU", f"for {show_seconds(training.idle_seconds)}" if training.idle_seconds else ""),
        ("trouble", harmless(training.trouble)),
        ("profile", training.kind),
    ]


def training_progress(training: TrainingView) -> str:
    """For a column: `epoch 3/10`, `42 %`; empty: nothing is known."""
    if training.epochs_total:
        return f"epoch {training.epochs_done}/{training.epochs_total}"
    if training.epochs_done:
        return f"epoch {training.epochs_done}"
    return "" if training.percent is None else f"{training.percent:.0f} %"


def eta_text(training: TrainingView) -> str:
    if training.eta_seconds is None:
        return ""
    low, high = training.eta_low_seconds, training.eta_high_seconds
    if low is None or high is None or show_seconds(low) == show_seconds(high):
        return show_seconds(training.eta_seconds)
    return f"{show_seconds(training.eta_seconds)} ({show_seconds(low)} to {show_seconds(high)})"


def epochs_bar(training: TrainingView) -> str:
    total, share = training.epochs_total, training.percent
    if total:
        share = 100 * training.epochs_done / total if share is None else share
        count = f"{training.epochs_done} of {total}"
    else:
        count = str(training.epochs_done or "")
    if share is None:
        return count
    full = round(BAR_COLUMNS * min(100.0, max(0.0, share)) / 100)
    return f"{count}  {'█' * full}{'░' * (BAR_COLUMNS - full)} {share:.0f} %".strip()


def sparkline(values: Sequence[float]) -> str:
    """The last values as bars, lowest to highest; empty for less than two of them."""
    shown = values[-PLOT_COLUMNS:]
    known = [value for value in shown if math.isfinite(value)]
    if len(known) < 2:
        return ""
    low, width = min(known), max(known) - min(known)
    return "".join(_level((value - low) / width if width else 0.5) for value in shown)


def plotted_metric(training: TrainingView) -> str:
    """A loss if there is one, else the first; empty: there are none."""
    names = list(training.metrics) or [name for epoch in training.history[-1:] for name in epoch.metrics]
    losses = [name for name in names if "loss" in name.lower()]
    return "loss" if "loss" in names else (losses or names or [""])[0]


def seconds_text(seconds: float | None) -> str:
    """As others, but a step may take microseconds."""
    if not seconds:
        return ""
    return f"{seconds * 1000:.3g} ms" if seconds < 0.1 else show_seconds(seconds)


def _step_text(training: TrainingView) -> str:
    known = f"{training.steps_per_epoch} in an epoch" if training.steps_per_epoch else ""
    return ", ".join(filter(None, (seconds_text(training.step_seconds), known)))


def _level(share: float) -> str:
    return LEVELS[min(len(LEVELS) - 1, int(share * len(LEVELS)))] if math.isfinite(share) else GAP


def _beside(text: str, values: Sequence[float]) -> str:
    return f"{text}  {sparkline(values)}".strip()


def _size_text(at: SizeView) -> str:
    parts = [f"epoch {seconds_text(at.epoch_seconds)}" if at.epoch_seconds else ""]
    parts.append(f"step {seconds_text(at.step_seconds)}" if at.step_seconds else "")
    return f"{at.size}: {', '.join(filter(None, parts))}"


def _gpu_text(training: TrainingView) -> str:
    parts = [
        "" if training.gpu_percent is None else f"{training.gpu_percent} % busy",
        show_mib(training.gpu_memory_mib) if training.gpu_memory_mib else "",
        f"at most {show_mib(training.peak_gpu_memory_mib)}" if training.peak_gpu_memory_mib else "",
    ]
    return ", ".join(filter(None, parts))


def _checkpoint_text(training: TrainingView) -> str:
    writes, restarts = seconds_text(training.checkpoint_seconds), seconds_text(training.restart_seconds)
    return ", ".join(filter(None, (writes and f"{writes} to write", restarts and f"{restarts} to restart")))


def _stops_text(training: TrainingView) -> str:
    counts = [
        f"{number} {word}{'' if number == 1 else 's'}"
        for number, word in ((training.preemptions, "preemption"), (training.resizes, "resize"))
        if number
    ]
    return "; ".join(filter(None, ("at checkpoints, when asked" if training.can_yield else "", ", ".join(counts))))


def _estimate_text(training: TrainingView) -> str:
    if training.estimated_seconds is None:
        return ""
    over = ", and it has taken longer: it is no longer treated as a short job" if training.is_over_estimate else ""
    return show_seconds(training.estimated_seconds) + over
