"""Verbs: one module for each, with its `command`. `cli.group.VERBS` names them; each is imported when it is used."""
