from tests.unit.cli.conftest import home, no_real_server, standin

__all__ = ["home", "no_real_server", "standin"]
