from tests.unit.cli.conftest import home, no_real_server, stand_in

__all__ = ["home", "no_real_server", "stand_in"]
