"""Input fields: which flags and manifest keys give a job a task for each row of values?"""

from __future__ import annotations

from jobyard.manifests.declarations import JobField, Option, Table
from jobyard.manifests.fields import Flag, Parsed, TextType, Whole
from jobyard.manifests.inputs import parse_colsep
from jobyard.manifests.sweep import SweepKind
from jobyard.model.limits import COLUMNS_MOST

INPUTS: Table = {
    "each_line": JobField(
        TextType(),
        "A file; one task per line of it, which replaces {} and is in YARD_LINE. Blank lines are left out.",
        option=Option("One task for each line of FILE (-: of stdin), given as {} and $YARD_LINE.", "FILE|-"),
    ),
    "each_json": JobField(
        TextType(),
        "A file with a JSON object on each line; one task per object, whose keys are placeholders and variables.",
        option=Option("One task for each JSON object in FILE: its key lr is {lr} and $YARD_PARAM_lr.", "FILE|-"),
    ),
    "sweep": JobField(
        SweepKind(),
        "Parameters and their values: {lr: [0.1, 0.01], seed: 0..4}; one task for each combination.",
        option=Option(
            "One task for each value: lr=0.1,0.01 or seed=0..4; several multiply.", "K=V,...", is_repeated=True
        ),
    ),
    "colsep": JobField(
        Parsed(parse_colsep, {"type": "string", "minLength": 1}, "a regular expression"),
        "What stands between the columns of a line: a regular expression. The columns are {1}, {2} and so on.",
        option=Option("Cut each line or value into columns, {1}, {2}, at REGEX.", "REGEX"),
    ),
    "header": JobField(
        Flag(),
        "The first line names the columns: {lr} and YARD_PARAM_lr.",
        False,
        option=Option("The first line, or value after :::, names the column, as {lr}."),
    ),
    "nul": JobField(
        Flag(),
        "Values in files end with NUL and not with their line, as those that find -print0 writes.",
        False,
        option=Option("Values in files end with NUL, as find -print0 writes them.", also=("-0",)),
    ),
    "values_per_task": JobField(
        Whole(0, COLUMNS_MOST),
        "So many lines are one task: {1}, {2} and so on; the last may have fewer. 0: one, which is not given to it.",
        1,
        option=Option("N lines or values for each task: {1}, {2}.", "N", also=("-N",)),
    ),
    "skip_existing": JobField(
        TextType(r"\S", "a file with placeholders, such as out/{}.npz"),
        "The file that a task makes, by its values: out/{}.npz. A task whose file is there is not submitted.",
        option=Option("Leave out tasks whose file is there: out/{}.npz.", "FILE"),
    ),
}
