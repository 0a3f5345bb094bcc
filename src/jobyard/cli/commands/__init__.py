"""One module for each verb; each has `command`. They are named in `cli.group.VERBS` and imported when used."""
