from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import Engine

from jobyard.server.database import open_database


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    """The database of a new yard."""
    return open_database(f"sqlite:///{tmp_path / 'yard.db'}")
